"""``ntkit solve``: the coefficients of kernel regression from a stored kernel matrix."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import typer

from ntkit._src.gram import open_gram, write_atomically
from ntkit._src.solvers import Outcome
from ntkit._src.solvers import solve as solve_system
from ntkit.errors import InputError

from ._cluster import Scheduler
from ._console import Json, check_out, command, emit, note
from ._data import column, read_table


@command("ntkit solve k.zarr data.csv --target price --ridge 1e-3 --out coefficients.npy")
def solve(
    gram: Annotated[Path, typer.Argument(metavar="GRAM", help="A matrix that ntkit gram stored.")],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="The table with the targets.")],
    target: Annotated[str, typer.Option(help="Name of the column of numbers to fit.")],
    out: Annotated[Path, typer.Option(help="The .npy file to write, one coefficient per row.")],
    ridge: Annotated[float, typer.Option(help="Relative to the mean of the diagonal.")] = 0.0,
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
    values = column(read_table(data), target, data)
    if values.dtype.kind not in "iufb":
        raise InputError(f"the target {target!r} must be numbers. Got text.")
    y = torch.from_numpy(np.array(values, np.float64)).to(stored.dtype)
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
