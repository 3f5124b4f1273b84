"""Kernel regression of many rows: a solver that fits into memory, and a ridge chosen on held-out rows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import as_columns, bytes_text
from ntkit._src.gram import KernelGram, free_disk, scratch_folder
from ntkit._src.kernels import Kernel
from ntkit._src.solvers import (
    CG,
    BlockedCholesky,
    EigenPro,
    Falkon,
    Method,
    Nystrom,
    NystromSystem,
    Solution,
    predict,
    solve,
)
from ntkit.errors import InputError, InputTypeError, StoreError

__all__ = ["LargeFit", "fit_large", "read_method", "shared_tensor", "spooled"]

_METHODS: dict[str, Method] = {
    "auto": Nystrom(),
    "cholesky": BlockedCholesky(),
    "cg": CG(),
    "nystrom": Nystrom(),
    "falkon": Falkon(),
    "eigenpro": EigenPro(),
}
_HELD_OUT, _MOST_HELD_OUT = 0.1, 20_000
_MOST_TUNED = 200_000
"""Rows that ridges are tried on. The best is the noise over the kernel's scale, which more rows do not change."""
_BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class LargeFit:
    """The result of a fit.

    Attributes
    ----------
    solution
        The coefficients, with centres if the method has them.
    ridge
        The ridge in use.
    errors
        For each candidate, the mean squared error on the held-out rows; empty if there was nothing to choose.
    held_out
        The row numbers of the held-out rows, shape (h,), and their predictions by a fit without them, shape (h,) or (h, k);
        None if none were held out.
    """

    solution: Solution
    ridge: float
    errors: dict[float, float]
    held_out: tuple[NDArray[Any], Tensor] | None


def read_method(solver: str | Method, n_centres: int | None) -> str | Method:
    """Return the method that the parameters name, or raise an error that lists them."""
    if isinstance(solver, Method):
        if n_centres is not None:
            raise InputError("n_centres needs a solver's name. Got both: write solver=Nystrom(n_centres).")
        return solver
    if not isinstance(solver, str) or solver not in _METHODS:
        raise InputError(f"solver must be one of {', '.join(map(repr, _METHODS))}, a Method, or None. Got {solver!r}.")
    if n_centres is None:
        return "auto" if solver == "auto" else _METHODS[solver]
    method = _METHODS[solver]
    if not isinstance(method, (Nystrom, Falkon)):
        raise InputError(f"n_centres goes with solver='nystrom' or 'falkon'. Got solver={solver!r}.")
    return replace(method, n_centres=n_centres)


def fit_large(
    kernel: Kernel, x: Tensor, y: Tensor, ridges: Sequence[float], method: str | Method, hold_out: bool
) -> LargeFit:
    """Fit, with the ridge that is best on held-out rows if there are several.

    Parameters
    ----------
    kernel
        The kernel.
    x : Tensor of shape (n, ...)
        The inputs.
    y : Tensor of shape (n,) or (n, k)
        The targets.
    ridges
        Candidates, relative to trace(K)/n.
    method
        The solver.
    hold_out
        Whether held-out predictions are wanted even with a single ridge.
    """
    n = len(x)
    if len(ridges) == 1 and not hold_out:
        return LargeFit(solve(kernel, y, method=method, ridge=ridges[0], x=x), ridges[0], {}, None)
    count = min(_MOST_HELD_OUT, max(1, round(_HELD_OUT * n)))
    if n < 2:
        raise InputError("holding rows out needs at least two samples. Got n_samples=1.")
    # Hold out rows at regular intervals: no permutation is stored, and sorted rows are held out evenly.
    held = torch.linspace(0, n - 1, count).round().long().unique()
    kept = torch.ones(n, dtype=torch.bool)
    kept[held] = False
    rest = _thinned(kept.nonzero()[:, 0], _MOST_TUNED)
    part, targets = x[rest], y[rest]
    tuned = _with_at_most(method, len(rest))
    found: dict[float, Tensor] = {}
    if isinstance(tuned, Nystrom):
        system: NystromSystem = tuned.set_up(KernelGram(kernel, part), ridges[0], targets)
        for ridge in ridges:
            found[ridge] = predict(kernel, x[held], part, system.with_ridge(ridge).solve(targets))
    else:
        for ridge in ridges:
            found[ridge] = predict(kernel, x[held], part, solve(kernel, targets, method=tuned, ridge=ridge, x=part))
    errors = {ridge: float((as_columns(one - y[held]).double() ** 2).mean()) for ridge, one in found.items()}
    best = min(errors, key=lambda ridge: errors[ridge] if math.isfinite(errors[ridge]) else math.inf)
    solution = solve(kernel, y, method=method, ridge=best, x=x)
    return LargeFit(solution, best, errors, (held.numpy(), found[best]))


def _with_at_most(method: str | Method, rows: int) -> str | Method:
    """Return the method with at most so many centres: fewer rows than the fit has may be left to tune with."""
    if isinstance(method, (Nystrom, Falkon)) and method.n_centres is not None and method.n_centres > rows:
        return replace(method, n_centres=rows)
    return method


def _thinned(rows: Tensor, most: int) -> Tensor:
    """Give at most so many of the rows, evenly."""
    return rows if len(rows) <= most else rows[torch.linspace(0, len(rows) - 1, most).round().long()]


def shared_tensor(rows: NDArray[Any]) -> Tensor:
    """Return an array as a tensor over the same memory, even for mapped files; it is only read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about read-only arrays
        return torch.from_numpy(rows)


def spooled(estimator: Any, X: Any, dtype: type[np.floating[Any]], scratch: str | None = None) -> Any:
    """Return rows from a Zarr or Dask array, or an iterable of blocks of shape (m, features), as a mapped file.

    Arrays, tensors, data frames and sparse matrices are returned unchanged. The file is deleted with the estimator.
    """
    if isinstance(X, (np.ndarray, Tensor, list, tuple)) or hasattr(X, "iloc") or hasattr(X, "tocsr"):
        return X
    module = type(X).__module__.partition(".")[0]
    if module in ("zarr", "dask"):
        blocks: Iterable[Any] = (X[start : start + _BLOCK_ROWS] for start in range(0, X.shape[0], _BLOCK_ROWS))
    elif hasattr(X, "__next__"):
        blocks = X
    else:
        return X
    folder = scratch_folder(estimator, Path(scratch) if scratch is not None else Path(_temporary()))
    rows, width, file = 0, 0, folder / "rows"
    with open(file, "wb") as out:
        for block in blocks:
            part = np.ascontiguousarray(block, dtype=dtype)
            if part.ndim != 2 or (width and part.shape[1] != width):
                raise InputTypeError(f"blocks of X must have shape (m, {width or 'features'}). Got {part.shape}.")
            if part.nbytes > free_disk(folder):
                raise StoreError(
                    f"X does not fit on the disk of {folder}: {bytes_text(out.tell())} are written. Set TMPDIR to a larger one."
                )
            out.write(part.data)
            rows, width = rows + len(part), part.shape[1]
    if not rows:
        raise InputError("X has no blocks of rows: Found array with 0 sample(s), at least one is needed.")
    return np.memmap(file, dtype, mode="r", shape=(rows, width))


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()
