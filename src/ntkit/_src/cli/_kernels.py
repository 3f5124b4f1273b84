"""``ntkit gram``, ``solve`` and ``posterior``: kernel matrices in files, and what follows from kernels."""

from __future__ import annotations

import io
import math
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer

from ntkit._src.dynamics import posterior as compute_posterior
from ntkit._src.gram import ClusterKernel, open_gram, write_atomically
from ntkit._src.gram import gram as compute_gram
from ntkit._src.kernels import infinite_width
from ntkit._src.solvers import Outcome
from ntkit._src.solvers import solve as solve_system
from ntkit.errors import InputError, StoreError

from ._console import (
    BStd,
    Json,
    Kernel,
    Ridge,
    Scheduler,
    Shape,
    TableOut,
    Test,
    Train,
    WStd,
    check_out,
    command,
    connected,
    emit,
    note,
    read_shape,
    write_table,
)
from ._data import Data, DType, inputs_and_targets, number_column, read_inputs, read_table
from ._modules import Module, read_module
from ._terminal import progress_bars


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
        with progress_bars() as bars, connected(scheduler) as client:
            stored = compute_gram(
                limit.ntk if kernel == "ntk" else limit.nngp, x1, x2, out=out, tile=tile, client=client, resume=not restart,
                progress=partial(bars, "entries"),
            )  # fmt: skip
    except StoreError as error:
        raise StoreError(str(error).replace("resume=False", "--restart")) from error
    rows, columns = (int(size) for size in stored.shape)
    result = {"gram": str(out), "shape": [rows, columns], "kernel": kernel, "dtype": dtype}
    emit(result, json, f"{out}: {rows} x {columns}")


@command("ntkit solve k.zarr data.csv --target price --ridge 1e-3 --out coefficients.npy")
def solve(
    gram: Annotated[Path, typer.Argument(metavar="GRAM", help="A matrix that ntkit gram stored.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The table with the targets.")],
    target: Annotated[str, typer.Option(help="Name of the column of numbers to fit.")],
    out: Annotated[Path, typer.Option(help="The .npy file to write, one coefficient per row.")],
    ridge: Ridge = 0.0,
    method: Annotated[Literal["cholesky", "cg", "eigenpro"], typer.Option(help="How to solve.")] = "cholesky",
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Solve (K + ridge tr(K)/n) a = y; predictions are K(x, X) a."""
    if scheduler is not None:
        raise InputError(
            "ntkit solve computes no kernel, so it has no use for --scheduler: ntkit gram takes it, whose matrix this reads."
        )
    if out.suffix != ".npy":
        raise InputError(f"--out must end in .npy. Got {out}.")
    check_out(out, gram, data)
    stored = open_gram(gram)
    y = torch.from_numpy(np.array(number_column(read_table(data), target, data), np.float64)).to(stored.dtype)
    solution = solve_system(stored, y, method=method, ridge=ridge, note=note)
    if solution.status.outcome is Outcome.NOT_CONVERGED:
        raise InputError(
            f"--method {method} left a relative residual of {solution.stats['residual']:.1e}, and nothing was written: write a "
            "larger --ridge, or --method cholesky."
        )
    content = io.BytesIO()
    np.save(content, solution.value.numpy(), allow_pickle=False)
    write_atomically(out, content.getvalue())
    stats = {name: float(value) for name, value in solution.stats.items()}
    emit({"coefficients": str(out), "status": str(solution.status), "stats": stats}, json, f"{out}: {solution.status}")


class _Placed(NamedTuple):
    """Both kernels of a network, computed on a cluster."""

    ntk: ClusterKernel
    nngp: ClusterKernel


@command("ntkit posterior net.toml train.csv test.csv --target y --mode nngp --ridge 1e-2")
def posterior(
    module: Module,
    train: Train,
    test: Test,
    target: Annotated[str, typer.Option(help="Name of the column of targets.")],
    out: TableOut = None,
    mode: Annotated[
        Literal["ntk", "nngp", "last_layer"], typer.Option(help="What is trained; nngp: Bayesian.")
    ] = "ntk",
    time: Annotated[float, typer.Option(help="Training time of gradient flow.")] = math.inf,
    ridge: Ridge = 0.0,
    shape: Shape = None,
    w_std: WStd = None,
    b_std: BStd = None,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Predict by infinitely wide networks, with spread.

    Prints, for each test row, the mean and the standard deviation of trained networks over their random initialisation.
    """
    if out is not None:
        check_out(out, train, test)
    of_one = read_shape(shape)
    limit = infinite_width(read_module(module), w_std=w_std, b_std=b_std)
    (x, names), targets = inputs_and_targets(train, target, of_one, "float64")
    y = torch.from_numpy(np.array(targets, np.float64))
    x_test = read_inputs(test, of_one, "float64", without=target, names=names).x
    with connected(scheduler) as client:
        kernels = limit if client is None else _Placed(*(ClusterKernel(one, client) for one in (limit.ntk, limit.nngp)))
        found = compute_posterior(kernels, x, y, x_test, mode=mode, t=time, ridge=ridge, covariance="diagonal")
    table = pd.DataFrame({"mean": found.mean.numpy(), "std": found.variance.sqrt().numpy()})
    note(found.status)
    write_table(table, out, json)
