"""Falkon: the Nystrom approximation by preconditioned conjugate gradients, for more centres than normal equations allow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_integer, check_memory
from ntkit._src.gram import GramOperator

from ._centres import Centres, factorise_centres, find_centres
from ._conjugate_gradients import conjugate_gradients
from ._method import Method, OnNote, Outcome, ShiftedGram, Solution, Status, System
from ._nystrom import BLOCK_BYTES, RowBlocks


def falkon_bytes(m: int, outputs: int) -> int:
    """Return the memory that the method holds, whatever n is."""
    return 8 * (3 * m * m + 10 * m * outputs) + 3 * BLOCK_BYTES


@dataclass(frozen=True)
class Falkon(Method):
    r"""The minimiser of :class:`Nystrom` by conjugate gradients (Rudi, Carratino, Rosasco 2017).

    With :math:`K_{MM} = T^T T` and :math:`\frac{n}{M} T T^T + \rho I = A^T A`, the matrix
    :math:`A^{-T} T^{-T} (K_{nM}^T K_{nM} + \rho K_{MM})\, T^{-1} A^{-1}` is close to the identity, so about ten
    iterations suffice, each of which recomputes K_nM in blocks. Nothing of size n M is stored, and
    n M^2 operations are never needed.

    Parameters
    ----------
    n_centres : int, optional
        M. None (default): 2,000, or fewer beyond 250,000 rows (1,000 at a million).
    centres : {"uniform", "rpcholesky", "leverage", "kmeans++"} or Tensor of shape (M,), default "uniform"
        How they are chosen (:func:`~ntkit.solvers.choose_centres`), or their row numbers. The preconditioner assumes that
        they represent all rows equally, as those drawn uniformly do; with others it takes more iterations.
    rtol : float, default 1e-10
        Stop at this residual of the preconditioned system.
    max_iterations : int, default 100
        Maximum number of passes over the data.
    seed : int, default 0
        Seed of the random choice.
    """

    n_centres: int | None = None
    centres: Centres | Tensor = "uniform"
    rtol: float = 1e-10
    max_iterations: int = 100
    seed: int = 0

    def set_up(self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None) -> System:
        """Factorise the matrix of the centres."""
        check_integer("max_iterations", self.max_iterations, 1)
        matrix = ShiftedGram.of(gram, ridge, note)
        rows = find_centres(gram, self.n_centres, self.centres, ridge, self.seed)
        outputs = 1 if y is None else as_columns(y).shape[1]
        check_memory(falkon_bytes(len(rows), outputs), f"Falkon with {len(rows)} centres", "Use fewer centres.")
        lower, jitter = factorise_centres(gram, rows, matrix.scale)
        inner = (gram.shape[0] / len(rows)) * (lower.T @ lower)
        inner.diagonal().add_(max(ridge, 1e-15) * matrix.scale)
        return _FalkonSystem(matrix, rows, lower, torch.linalg.cholesky(inner), jitter, self)


@dataclass(frozen=True)
class _FalkonSystem(System):
    """``lower`` is T^T, ``outer`` is A^T, both lower triangular of shape (M, M)."""

    matrix: ShiftedGram
    centres: Tensor
    lower: Tensor
    outer: Tensor
    jitter: float
    settings: Falkon

    def solve(self, y: Tensor) -> Solution:
        start = time.perf_counter()
        columns = as_columns(y).detach().cpu().double()
        moment = self._pass(lambda rows, block: block.T @ columns[rows], columns.shape[1])
        right = torch.linalg.solve_triangular(self.lower, moment, upper=False)
        right = torch.linalg.solve_triangular(self.outer, right, upper=False)

        def apply(v: Tensor) -> Tensor:
            w = torch.linalg.solve_triangular(self.outer.T, v, upper=True)
            u = torch.linalg.solve_triangular(self.lower.T, w, upper=True)
            image = self._pass(lambda rows, block: block.T @ (block @ u), v.shape[1])
            half = torch.linalg.solve_triangular(self.lower, image, upper=False) + self.matrix.shift * w
            result: Tensor = torch.linalg.solve_triangular(self.outer, half, upper=False)
            return result

        found = conjugate_gradients(
            apply, right, torch.clone, self.settings.rtol, self.settings.max_iterations, self.matrix.note
        )
        w = torch.linalg.solve_triangular(self.outer.T, found.value, upper=True)
        value = torch.linalg.solve_triangular(self.lower.T, w, upper=True)
        held = falkon_bytes(len(self.centres), columns.shape[1])
        iterations = float(found.iterations)
        stats = self.matrix.stats(found.residual, start, held, iterations=iterations, jitter=self.jitter)
        status = found.status(f"Falkon with {len(self.centres)} of {len(columns)} rows as centres")
        if status.outcome is Outcome.SOLVED:
            status = Status(Outcome.APPROXIMATED, str(status))
        shape = (len(self.centres), *y.shape[1:])
        return Solution(value.reshape(shape).to(y), status, stats, self.centres)

    def _pass(self, function: Callable[[slice, Tensor], Tensor], outputs: int) -> Tensor:
        """Add up a function of K_nM's blocks of rows, shape (M, outputs)."""
        total = torch.zeros(len(self.centres), outputs, dtype=torch.float64)
        for rows, block in RowBlocks(self.matrix.gram, self.centres):
            total += function(rows, block.double())
        return total
