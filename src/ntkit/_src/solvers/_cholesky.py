"""Cholesky factorisation of a Gram matrix in memory, with jitter only if it is needed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_gram, check_ridge, mirror_upper, row_blocks, why_singular
from ntkit.errors import JitterWarning, SingularKernelError

from ._lapack import cholesky, reliable_pivots, run_lapack
from ._method import Outcome, Solution, Status, System, check_scale, relative_residual

_LARGEST_JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}
_WORST_RESIDUAL = 0.1
_REFINEMENTS = 3
_EXACT, _LARGE = 1e-12, 1024  # from this size on, refining beyond this accuracy costs more than it is worth
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class CholeskyFactor(System):
    """A = K + (ridge + jitter) scale I = L L^T, scale being trace(K)/n: factorise once, solve often."""

    gram: Tensor  # K, kept by reference, shape (n, n)
    lower: Tensor
    scale: float
    ridge: float
    jitter: float

    def solve(self, y: Tensor) -> Solution:
        """Solve A a = y for y of shape (n,) or (n, k), with iterative refinement."""
        columns, shift = as_columns(y), (self.ridge + self.jitter) * self.scale
        with torch.no_grad():
            value, residual, refinements = refine(
                self._substitute,
                lambda one: dense_remainder(self.gram, shift, columns, one),
                columns,
                _EXACT if len(columns) >= _LARGE else -1.0,
            )
        if torch.is_grad_enabled() and (self.gram.requires_grad or y.requires_grad):
            # One more refinement step, recorded by autograd: its derivative A^-1 (dy - dA a) is that of the solution.
            applied = self.gram @ value + (self.ridge + self.jitter) * self.gram.diagonal().mean() * value
            value = value + self._substitute(columns - applied)
        stats = {"residual": residual, "ridge": self.ridge, "jitter": self.jitter, "scale": self.scale}
        stats["refinements"] = float(refinements)
        added = f"jitter of {self.jitter:.1e} trace(K)/n was added" if self.jitter else "no jitter was needed"
        status = Status(
            Outcome.JITTERED if self.jitter else Outcome.SOLVED,
            f"Solved by Cholesky factorisation; {added}; relative residual {residual:.1e}.",
        )
        return Solution(value.reshape(y.shape), status, stats)

    def _substitute(self, columns: Tensor) -> Tensor:
        # torch.cholesky_solve does the same but copies the factor first.
        half = torch.linalg.solve_triangular(self.lower, columns, upper=False)
        value: Tensor = torch.linalg.solve_triangular(self.lower.mT, half, upper=True)
        return value


def refine(
    substitute: Callable[[Tensor], Tensor], remainder: Callable[[Tensor], Tensor], y: Tensor, enough: float = -1.0
) -> tuple[Tensor, float, int]:
    """Solve A a = y, shape (n, k), and correct a while that halves the residual, unless this is at most ``enough``.

    ``substitute`` maps y to A^-1 y up to rounding, ``remainder`` a to y - A a. Returns a, its relative residual, the corrections.
    """
    value = substitute(y)
    left = remainder(value)
    residual = relative_residual(left, y)
    if residual <= enough:
        return value, residual, 0
    for step in range(_REFINEMENTS):
        candidate = value + substitute(left)
        left = remainder(candidate)
        improved = relative_residual(left, y)
        if not improved < 0.5 * residual:
            return value, residual, step
        value, residual = candidate, improved
    return value, residual, _REFINEMENTS


def dense_remainder(gram: Tensor, shift: float, y: Tensor, value: Tensor) -> Tensor:
    """Return y - (K + shift I) a, shape (n, k), formed in float64."""
    # A float32 residual formed in float32 is mostly rounding; in float64 one step recovers the lost digits.
    # Blocks of rows keep the float64 copy small.
    wide = value.double()
    blocks = zip(*(torch.split(matrix, _BLOCK_ROWS) for matrix in (y, gram, wide)), strict=True)
    parts = [part.double() - rows.double() @ wide - shift * own for part, rows, own in blocks]
    return torch.cat(parts).to(y.dtype)


def factorize(gram: Tensor, ridge: float = 0.0) -> CholeskyFactor:
    """Factorise K + ridge trace(K)/n I, shape (n, n), with the least jitter that works; SingularKernelError if none does."""
    ridge = check_ridge(ridge)
    factor = next(_attempts(check_gram(gram), ridge), None)
    if factor is None:
        raise _singular(gram, ridge)
    _warn(gram, factor.jitter, stacklevel=3)
    return factor


def factorize_exactly(gram: Tensor, ridge: float) -> CholeskyFactor | None:
    """Factorise K + ridge trace(K)/n I, or return None if that needs jitter; the input has been checked."""
    matrix = gram.detach()
    scale = float(matrix.diagonal().double().mean())
    lower = _lower(matrix, ridge * scale) if scale > 0 else None
    return None if lower is None else CholeskyFactor(gram, lower, scale, ridge, 0.0)


def best_factor(gram: Tensor, y: Tensor, ridge: float, stacklevel: int = 3) -> tuple[CholeskyFactor, Solution]:
    """Return the factor with the smallest jitter whose solution reproduces y, and that solution; the input has been checked."""
    # The error after refinement, of size eps ||A|| ||a||, is as large as the rounding of a prediction K(x, X) a.
    good = torch.finfo(gram.dtype).eps ** (1 / 3)
    best: tuple[CholeskyFactor, Solution] | None = None
    for factor in _attempts(gram, ridge):
        solution = factor.solve(y)
        if best is None or solution.stats["residual"] < best[1].stats["residual"]:
            best = factor, solution
        if solution.stats["residual"] <= good:
            break
    if best is None or not best[1].stats["residual"] <= _WORST_RESIDUAL:
        raise _singular(gram, ridge)
    _warn(gram, best[0].jitter, stacklevel)
    return best


def _attempts(gram: Tensor, ridge: float) -> Iterator[CholeskyFactor]:
    """Yield every factorisation that succeeds, by increasing jitter, starting without any."""
    matrix = gram.detach()
    scale = check_scale(float(matrix.diagonal().double().mean()))
    eps, largest = torch.finfo(gram.dtype).eps, _LARGEST_JITTER[gram.dtype]
    jitter = 0.0
    while True:
        lower = _lower(matrix, (ridge + jitter) * scale)
        if lower is not None:
            yield CholeskyFactor(gram, lower, scale, ridge, jitter)
        if jitter >= largest:
            return
        del lower
        jitter = min(10 * jitter, largest) if jitter else 4 * eps


def _lower(matrix: Tensor, shift: float) -> Tensor | None:
    """Return L with L L^T = K + shift I, or None if that is singular."""
    lower, exists = cholesky(matrix, shift)
    return lower if exists and reliable_pivots(lower, matrix.diagonal() + shift) else None


def _warn(gram: Tensor, jitter: float, stacklevel: int) -> None:
    if jitter:
        wider = ", or work in float64" if gram.dtype == torch.float32 else ""
        warnings.warn(
            f"the Gram matrix is numerically singular: {why_singular(gram)}. Added {jitter:.1e} trace(K)/n to its diagonal; "
            f"pass ridge={jitter:.0e} or more to choose it yourself{wider}.",
            JitterWarning,
            stacklevel=stacklevel,
        )


def _singular(gram: Tensor, ridge: float) -> SingularKernelError:
    largest = _LARGEST_JITTER[gram.dtype]
    return SingularKernelError(
        f"the Gram matrix stays singular with ridge={ridge:.1e} and a jitter of {largest:.0e} trace(K)/n. Is it "
        "positive semidefinite? If not, as label-aware ones, solve it as it is, method='indefinite'; otherwise pass a ridge "
        f"above {max(ridge, largest):.0e}" + (", or compute it in float64." if gram.dtype == torch.float32 else ".")
    )


@dataclass(frozen=True)
class InPlaceFactor:
    """A = K + shift I = L L^T in the memory of K, shape (n, n): L^T on and above the diagonal, K below, its diagonal apart."""

    memory: Tensor
    diagonal: Tensor
    shift: float

    def solve(self, y: Tensor) -> tuple[Tensor, float]:
        """Return A^-1 y for y of shape (n, k), with iterative refinement, and the relative residual."""
        value, residual, _ = refine(self._substitute, lambda one: self._remainder(y, one), y)
        return value, residual

    def inverse_diagonal(self) -> Tensor:
        """Return the diagonal of A^-1, shape (n,). This destroys the factor; K below the diagonal stays."""
        run_lapack("trtri", self.memory, lower=1, overwrite_c=1)
        # Row i of the upper triangle is column i of L^-1.
        parts = []
        for rows in row_blocks(len(self.memory), _BLOCK_ROWS):
            own = self.memory[rows, rows].triu().square().sum(1)
            parts.append(own + self.memory[rows, rows.stop :].square().sum(1))
        return torch.cat(parts)

    def restore(self) -> Tensor:
        """Restore K in its memory; this destroys the factor."""
        self.memory.diagonal().copy_(self.diagonal)
        mirror_upper(self.memory.T)
        return self.memory

    def _substitute(self, columns: Tensor) -> Tensor:
        found, _ = run_lapack("potrs", self.memory, columns.numpy(), lower=1)
        return torch.from_numpy(found.copy(order="C"))

    def _remainder(self, y: Tensor, value: Tensor) -> Tensor:
        """Return y - A value, formed in float64."""
        wide = value.double()
        product = upper_product(self.memory.mT, self.diagonal, wide, _BLOCK_ROWS)
        return (y.double() - product - self.shift * wide).to(y.dtype)


def factorize_in_place(gram: Tensor, ridge: float) -> InPlaceFactor | None:
    """Factorise K + ridge trace(K)/n I in the contiguous CPU memory of K; None, and K intact, if that needs jitter."""
    diagonal = gram.diagonal().clone()
    shift = ridge * float(diagonal.double().mean())
    gram.diagonal().add_(shift)
    _, info = run_lapack("potrf", gram, lower=1, clean=0, overwrite_a=1)
    factor = InPlaceFactor(gram, diagonal, shift)
    if info == 0 and reliable_pivots(gram, diagonal + shift):
        return factor
    factor.restore()
    return None


def upper_product(matrix: Tensor, diagonal: Tensor, v: Tensor, width: int) -> Tensor:
    """Return K v for v of shape (n, k), float64, K having its entries above the diagonal in ``matrix``, shape (n, n)."""
    total = diagonal.double()[:, None] * v
    for own in row_blocks(len(matrix), width):
        square = matrix[own, own].triu(1).double()
        total[own] += square @ v[own] + square.T @ v[own]
        for start in range(own.stop, len(matrix), 4 * width):  # so that the float64 copy stays small
            rest = slice(start, start + 4 * width)
            values = matrix[own, rest].double()
            total[own] += values @ v[rest]
            total[rest] += values.T @ v[own]
    return total
