"""Preconditioned conjugate gradients for a Gram matrix that is stored or computed tile by tile."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_integer
from ntkit._src.gram import GramOperator
from ntkit.errors import SingularKernelError

from ._centres import Pivoting, pivoted_cholesky
from ._method import Method, OnNote, Outcome, ShiftedGram, Solution, Status, System

Linear = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class CG(Method):
    r"""Conjugate gradients, preconditioned by a partial pivoted Cholesky factorisation.

    With :math:`K \approx U \Lambda U^T` of rank r from r columns of K, and :math:`\mu` the ridge, the preconditioner is
    (Frangella, Tropp, Udell 2023) :math:`P^{-1} = (\lambda_r + \mu)\, U (\Lambda + \mu)^{-1} U^T + (I - U U^T)`. All columns of
    the right-hand side share the products with K, one per iteration.

    Parameters
    ----------
    rtol : float, default 1e-10
        Stop when the residual of every column is below this times the norm of the column.
    max_iterations : int, default 1000
        Stop after this many iterations in any case.
    rank : int, optional
        r; 0 for no preconditioner. None (default) is about 3 sqrt(n).
    pivoting : {"random", "greedy", "uniform"}, default "random"
        How the columns are chosen (:func:`~ntkit.solvers.pivoted_cholesky`).
    seed : int, default 0
        Seed of the random choice.

    Examples
    --------
    >>> import torch, ntkit
    >>> x = torch.linspace(-1, 1, 200, dtype=torch.float64)
    >>> gram = torch.exp(-((x[:, None] - x) ** 2) / 0.1)
    >>> found = ntkit.solve(gram, torch.sin(3 * x), method=ntkit.solvers.CG(), ridge=1e-3)
    >>> exact = ntkit.solve(gram, torch.sin(3 * x), ridge=1e-3)
    >>> bool((found.value - exact.value).abs().max() < 1e-6)
    True
    """

    rtol: float = 1e-10
    max_iterations: int = 1000
    rank: int | None = None
    pivoting: Pivoting = "random"
    seed: int = 0

    def set_up(self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None) -> System:
        """Factorise the preconditioner."""
        check_integer("max_iterations", self.max_iterations, 1)
        n = gram.shape[0]
        rank = default_rank(n) if self.rank is None else min(check_integer("rank", self.rank, 0), n)
        matrix = ShiftedGram.of(gram, ridge, note)
        precondition: Linear = torch.clone
        if rank:
            low = pivoted_cholesky(gram, rank, self.pivoting, torch.Generator().manual_seed(self.seed))
            precondition = nystrom_preconditioner(low.factor, matrix.shift)
            matrix.note(f"Preconditioner of rank {low.factor.shape[1]}: {low.left:.1e} of the trace is left.")
        return _CGSystem(matrix, precondition, rank, self)


def cg_bytes(gram: GramOperator, rank: int, outputs: int) -> int:
    """Return the memory that the method holds: the preconditioner, a few vectors per output and two tiles of K."""
    n: int = gram.shape[0]
    return 8 * n * (rank + 6 * outputs) + 2 * gram.plan.size**2 * gram.dtype.itemsize


def default_rank(n: int) -> int:
    """Return the rank of a preconditioner that costs about as much as a few products with the matrix."""
    return min(n, max(20, math.ceil(3 * math.sqrt(n))))


def nystrom_preconditioner(factor: Tensor, shift: float) -> Linear:
    """Return the map v -> P^-1 v for K near F F^T, F of shape (n, r), shifted by ``shift``."""
    # U and Lambda come from the small matrix F^T F, without the directions that are only rounding.
    values, vectors = torch.linalg.eigh(factor.T @ factor)
    kept = values > 1e-12 * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    basis = (factor @ vectors) / values.sqrt()
    # The unseen part of K is about as large as the smallest part seen.
    gain = (values[0] + shift) / (values + shift) - 1
    return lambda v: v + basis @ (gain[:, None] * (basis.T @ v))


@dataclass(frozen=True)
class _CGSystem(System):
    matrix: ShiftedGram
    precondition: Linear
    rank: int
    settings: CG

    def solve(self, y: Tensor) -> Solution:
        start = time.perf_counter()
        columns = as_columns(y).double()
        matrix, settings = self.matrix, self.settings
        found = conjugate_gradients(
            matrix.apply, columns, self.precondition, settings.rtol, settings.max_iterations, matrix.note
        )
        held = cg_bytes(matrix.gram, self.rank, columns.shape[1])
        stats = matrix.stats(found.residual, start, held, iterations=float(found.iterations))
        return Solution(found.value.reshape(y.shape).to(y.dtype), found.status("conjugate gradients"), stats)


@dataclass(frozen=True)
class Descended:
    """The result of conjugate gradients."""

    value: Tensor  # the solution, shape (n, k), float64
    residual: float  # ||A a - y|| / ||y||, the largest over the columns, recomputed from the solution
    iterations: int
    converged: bool
    needed: int  # iterations that the tolerance would take, extrapolated from the convergence so far

    def status(self, name: str) -> Status:
        """Return how it ended."""
        if self.converged:
            return Status(
                Outcome.SOLVED,
                f"Solved by {name} in {self.iterations} iterations; relative residual {self.residual:.1e}.",
            )
        return Status(
            Outcome.NOT_CONVERGED,
            f"Not solved: {name} left a relative residual of {self.residual:.1e} after {self.iterations} iterations; at this "
            f"speed about {self.needed} are needed. Pass max_iterations={self.needed}, a larger rank or a larger ridge.",
        )


def conjugate_gradients(
    apply: Linear, y: Tensor, precondition: Linear, rtol: float, max_iterations: int, note: OnNote
) -> Descended:
    """Solve A a = y for y of shape (n, k), each column separately but with shared products.

    Raises SingularKernelError if A has a direction along which it is not positive.
    """
    norms = y.norm(dim=0)
    norms = torch.where(norms > 0, norms, 1)
    value, remainder, history = torch.zeros_like(y), y.clone(), [float((y.norm(dim=0) / norms).max())]
    used = 0
    # The recurrence for the residual drifts by rounding: restart from the true residual while that helps.
    while used < max_iterations and history[-1] > rtol:
        before = history[-1]
        value, used = _descend(
            apply, precondition, rtol * norms, max_iterations, (value, remainder, used), history, note
        )
        remainder = y - apply(value)
        history[-1] = float((remainder.norm(dim=0) / norms).max())
        if history[-1] > 0.5 * before:
            break
    return Descended(value, history[-1], used, history[-1] <= rtol, _needed(history, rtol))


def _descend(
    apply: Linear,
    precondition: Linear,
    target: Tensor,
    max_iterations: int,
    start: tuple[Tensor, Tensor, int],
    history: list[float],
    note: OnNote,
) -> tuple[Tensor, int]:
    """Continue from a value and its residual until the recurrence reaches the target."""
    value, remainder, used = start
    first, scale = history[-1], float((remainder.norm(dim=0) / target).max())
    direction = z = precondition(remainder)
    rho = (remainder * z).sum(0)
    while used < max_iterations:
        active = remainder.norm(dim=0) > target
        if not bool(active.any()):
            break
        image = apply(direction)
        used += 1
        curvature = (direction * image).sum(0)
        if bool((curvature[active] <= 0).any()):
            raise SingularKernelError(
                f"the matrix is not positive definite: conjugate gradients found a direction of curvature "
                f"{float(curvature[active].min()):.1e} after {used} iterations. Pass a larger ridge, or check the kernel."
            )
        step = torch.where(active, rho / torch.where(active, curvature, 1), 0)
        value = value + step * direction
        remainder = remainder - step * image
        z = precondition(remainder)
        fresh = (remainder * z).sum(0)
        direction = z + torch.where(active & (rho != 0), fresh / torch.where(rho != 0, rho, 1), 0) * direction
        rho = fresh
        history.append(first * float((remainder.norm(dim=0) / target).max()) / scale)
        note(f"Iteration {used}: relative residual {history[-1]:.1e}.")
    return value, used


def _needed(history: list[float], rtol: float) -> int:
    """Return the iterations that the tolerance takes at the mean speed of the second half."""
    last, half = history[-1], history[len(history) // 2]
    steps = len(history) - 1 - len(history) // 2
    if last <= rtol or steps < 1:
        return len(history) - 1
    if last >= half:
        return 10 * len(history)
    return len(history) - 1 + math.ceil(1.2 * steps * math.log(last / rtol) / math.log(half / last))
