"""Separate kernel regression of every row: one Gram matrix of columns, one small system per pattern of gaps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import why_singular
from ntkit._src.solvers import CholeskyFactor, best_factor, factorize_exactly
from ntkit.errors import JitterWarning, SingularKernelError

from ._entries import Entries


@dataclass(frozen=True, eq=False)
class RowFits:
    """The regressions of all rows."""

    # f, shape (k, d); zero for rows without entries; None if only ``fit`` was requested
    values: NDArray[np.float64] | None
    variances: NDArray[np.float64] | None  # posterior variances under covariance K, shape (k, d)
    fit: float  # the sum over rows of y^T (K + rho I)^-1 y


def entry_scale(gram: Tensor, entries: Entries) -> float:
    """Return trace/m of the kernel matrix of all m observed entries, of which only the diagonal is needed."""
    return float(gram.diagonal()[torch.from_numpy(entries.columns)].mean()) if len(entries) else 0.0


def fit_rows(gram: Tensor, entries: Entries, shift: float, values: bool = True, variances: bool = False) -> RowFits:
    r"""Regress every row on its observed entries S: :math:`f = K_{\cdot S} (K_{SS} + \rho I)^{-1} y_S`, rho the ``shift``.

    This is the kernel regression over all entries at once, whose kernel :math:`K_{j j'} 1\{i = i'\}` has one block per row
    (Golikov et al. 2022, eq. 100); rows with the same S share one factorisation. ``gram`` is K of the columns, shape (d, d).
    """
    k, d = entries.shape
    out = np.zeros((k, d)) if values else None
    prior = gram.diagonal().clamp_min(0).numpy()
    spread = np.tile(prior, (k, 1)) if variances else None
    total, singular = 0.0, _Singular()
    for columns, rows, targets in entries.patterns():
        observed = torch.from_numpy(columns)
        system, y = gram[observed][:, observed], torch.from_numpy(targets)
        factor = _factorize(system, y, shift, int(rows[0]), len(rows), singular)
        if factor is None:
            continue  # the kernel is zero on these columns and says nothing about the others
        weights = factor.solve(y).value
        total += float((y * weights).sum())
        cross = gram[:, observed] if values or variances else None
        if out is not None and cross is not None:
            out[rows] = (cross @ weights).T.numpy()
        if spread is not None and cross is not None:
            half = torch.linalg.solve_triangular(factor.lower, cross.T, upper=False)
            spread[rows] = np.maximum(prior - (half**2).sum(0).numpy(), 0.0)
    singular.warn()
    return RowFits(out, spread, total)


def held_out_errors(gram: Tensor, entries: Entries, held_out: Entries, shifts: Sequence[float]) -> NDArray[np.float64]:
    """Return the mean squared error on held-out entries for every shift, from one eigendecomposition per pattern."""
    errors = np.zeros(len(shifts))
    places = held_out.row_slices()
    known = np.zeros(entries.shape[0], bool)
    levels = torch.tensor(shifts, dtype=torch.float64)
    for columns, rows, targets in entries.patterns():
        known[rows] = True
        rows_left = [row for row in rows if places[row].start < places[row].stop]
        if not rows_left:
            continue
        observed = torch.from_numpy(columns)
        eigenvalues, vectors = torch.linalg.eigh(gram[observed][:, observed])
        rounding = len(columns) * torch.finfo(torch.float64).eps * eigenvalues[-1].clamp_min(0)
        clean = torch.where(eigenvalues > rounding, eigenvalues, 0)
        inverse = clean[:, None] + levels
        inverse = torch.where((inverse > 0) & (clean[:, None] > 0), 1 / inverse, 0)
        coordinates = vectors.T @ torch.from_numpy(targets)
        number = {int(row): index for index, row in enumerate(rows)}
        for row in rows_left:
            part = places[row]
            cross = gram[torch.from_numpy(held_out.columns[part])][:, observed] @ vectors
            predicted = cross @ (inverse * coordinates[:, [number[int(row)]]])
            errors += ((predicted.numpy() - held_out.values[part][:, None]) ** 2).sum(0)
    for row in np.flatnonzero(~known):
        errors += float((held_out.values[places[row]] ** 2).sum())
    return errors / len(held_out)


class _Singular:
    """The rows whose systems needed jitter."""

    def __init__(self) -> None:
        self.rows, self.first, self.why, self.jitter = 0, 0, "", 0.0

    def add(self, system: Tensor, row: int, rows: int, jitter: float) -> None:
        """Count the rows of one pattern, and describe the first."""
        if not self.rows:
            self.first, self.why = row, why_singular(system)
        self.rows += rows
        self.jitter = max(self.jitter, jitter)

    def warn(self) -> None:
        """Warn once for all rows."""
        if self.rows:
            warnings.warn(
                f"the systems of {self.rows} rows are numerically singular; in that of row {self.first}, counting its "
                f"observed columns, {self.why}. Added up to {self.jitter:.1e} of the kernel's diagonal; pass a ridge above it to "
                "choose it yourself.",
                JitterWarning,
                stacklevel=4,
            )


def _factorize(
    system: Tensor, y: Tensor, shift: float, row: int, rows: int, singular: _Singular
) -> CholeskyFactor | None:
    scale = float(system.diagonal().mean())
    if not scale > 0:
        return None
    factor = factorize_exactly(system, shift / scale)
    if factor is not None:
        return factor
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", JitterWarning)  # reported once for all rows
            factor = best_factor(system, y, shift / scale)[0]
    except SingularKernelError as error:
        raise SingularKernelError(f"the system of row {row} cannot be solved: {error}") from error
    singular.add(system, row, rows, factor.jitter)
    return factor
