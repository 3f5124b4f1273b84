"""``ntkit gram``: a kernel matrix in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntkit._src.gram import gram as compute_gram
from ntkit._src.kernels import infinite_width
from ntkit.errors import StoreError

from ._cluster import Scheduler, connected
from ._console import BStd, Json, Kernel, Shape, WStd, command, emit, gram_progress, read_shape
from ._data import Data, DType, read_inputs
from ._modules import Module, read_module


@command(
    "ntkit gram net.toml images.npy --shape 3,32,32 --out k.zarr",
    "ntkit gram net.toml images.npy --out k.zarr --scheduler tcp://10.0.0.1:8786",
)
def gram(
    module: Module,
    data: Data,
    out: Annotated[Path, typer.Option(help="Where to store the matrix: name.npy or name.zarr.")],
    other: Annotated[Path | None, typer.Option(help="The points of the columns; default those of the rows.")] = None,
    drop: Annotated[str | None, typer.Option(help="A column that is not an input.")] = None,
    shape: Shape = None,
    kernel: Kernel = "ntk",
    w_std: WStd = None,
    b_std: BStd = None,
    dtype: Annotated[DType, typer.Option(help="Of the entries.")] = "float64",
    tile: Annotated[int | None, typer.Option(min=1, help="Rows and columns of a tile.")] = None,
    scheduler: Scheduler = None,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew instead of resuming.")] = False,
    json: Json = False,
) -> None:
    """Compute and store the kernel matrix of a network.

    It is computed tile by tile; the same command resumes an interrupted computation.
    """
    of_one = read_shape(shape)
    limit = infinite_width(read_module(module), w_std=w_std, b_std=b_std)
    x1, names = read_inputs(data, of_one, dtype, without=drop)
    x2 = None if other is None else read_inputs(other, of_one, dtype, without=drop, names=names).x
    try:
        with gram_progress() as progress, connected(scheduler) as client:
            stored = compute_gram(
                limit.ntk if kernel == "ntk" else limit.nngp,
                x1,
                x2,
                out=out,
                tile=tile,
                client=client,
                resume=not restart,
                progress=progress,
            )
    except StoreError as error:
        raise StoreError(str(error).replace("resume=False", "--restart")) from error
    rows, columns = (int(size) for size in stored.shape)
    emit(
        {"gram": str(out), "shape": [rows, columns], "kernel": kernel, "dtype": dtype},
        json,
        f"{out}: {rows} x {columns}",
    )
