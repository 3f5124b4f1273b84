"""Cholesky factorisation of a Gram matrix, with jitter only if it is needed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import check_gram, check_ridge, why_singular
from ntkit.errors import JitterWarning, SingularKernelError

from ._lapack import cholesky
from ._solution import Solution
from ._status import Outcome, Status

__all__ = ["CholeskyFactor", "best_factor", "factorize", "factorize_exactly", "solve_cholesky"]

_LARGEST_JITTER = {torch.float32: 1e-4, torch.float64: 1e-6}
_WORST_RESIDUAL = 0.1
_REFINEMENTS = 3
_EXACT, _LARGE = 1e-12, 1024  # from this size on, refining beyond this accuracy costs more than it is worth
_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class CholeskyFactor:
    """A = K + (ridge + jitter) trace(K)/n I and its factor A = L L^T: factorise once, solve often.

    Attributes
    ----------
    gram
        K, shape (n, n); kept by reference, not copied.
    lower
        L, shape (n, n).
    scale
        trace(K)/n.
    ridge, jitter
        What was added to the diagonal, relative to ``scale``.
    """

    gram: Tensor
    lower: Tensor
    scale: float
    ridge: float
    jitter: float

    def solve(self, y: Tensor) -> Solution:
        """Solve A a = y for y of shape (n,) or (n, k), with iterative refinement."""
        columns = y if y.ndim == 2 else y[:, None]
        with torch.no_grad():
            value, residual, refinements = self._refined(columns)
        if torch.is_grad_enabled() and (self.gram.requires_grad or y.requires_grad):
            # One more refinement step, recorded by autograd: its derivative A^-1 (dy - dA a) is that of the solution.
            value = value + self._substitute(columns - self._apply(value))
        stats = {
            "residual": residual,
            "ridge": self.ridge,
            "jitter": self.jitter,
            "scale": self.scale,
            "refinements": float(refinements),
        }
        added = f"jitter of {self.jitter:.1e} trace(K)/n was added" if self.jitter else "no jitter was needed"
        status = Status(
            Outcome.JITTERED if self.jitter else Outcome.SOLVED,
            f"Solved by Cholesky factorisation; {added}; relative residual {residual:.1e}.",
        )
        return Solution(value.reshape(y.shape), status, stats)

    def _refined(self, columns: Tensor) -> tuple[Tensor, float, int]:
        value = self._substitute(columns)
        remainder = self._remainder(columns, value)
        residual = _relative(remainder, columns)
        if residual <= _EXACT and len(columns) >= _LARGE:
            return value, residual, 0
        for step in range(_REFINEMENTS):
            candidate = value + self._substitute(remainder)
            remainder = self._remainder(columns, candidate)
            improved = _relative(remainder, columns)
            if not improved < 0.5 * residual:
                return value, residual, step
            value, residual = candidate, improved
        return value, residual, _REFINEMENTS

    def _substitute(self, columns: Tensor) -> Tensor:
        # torch.cholesky_solve does the same but copies the factor first.
        half = torch.linalg.solve_triangular(self.lower, columns, upper=False)
        value: Tensor = torch.linalg.solve_triangular(self.lower.mT, half, upper=True)
        return value

    def _apply(self, value: Tensor) -> Tensor:
        scale = self.gram.diagonal().mean()
        return self.gram @ value + (self.ridge + self.jitter) * scale * value

    def _remainder(self, columns: Tensor, value: Tensor) -> Tensor:
        # A float32 residual formed in float32 is mostly rounding; in float64 one step recovers the lost digits.
        # Blocks of rows keep the float64 copy small.
        wide = value.double()
        shift = (self.ridge + self.jitter) * self.scale
        parts = [
            part.double() - rows.double() @ wide - shift * own
            for part, rows, own in zip(
                *(torch.split(matrix, _BLOCK_ROWS) for matrix in (columns, self.gram, wide)), strict=True
            )
        ]
        return torch.cat(parts).to(columns.dtype)


def factorize(gram: Tensor, ridge: float = 0.0) -> CholeskyFactor:
    """Factorise K + ridge trace(K)/n I with the smallest jitter that works.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        Symmetric and positive semidefinite, float32 or float64.
    ridge : float
        Added to the diagonal, relative to ``trace(K)/n``.

    Raises
    ------
    SingularKernelError
        When no jitter up to 1e-4 (float32) or 1e-6 (float64) of ``trace(K)/n`` is enough.

    Examples
    --------
    >>> import torch
    >>> from ntkit._src.solvers import factorize
    >>> factor = factorize(2 * torch.eye(3))
    >>> factor.solve(torch.ones(3)).value
    tensor([0.5000, 0.5000, 0.5000])
    """
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


def solve_cholesky(gram: Tensor, y: Tensor, ridge: float) -> Solution:
    """Solve with the smallest jitter whose solution reproduces y; the input has been checked."""
    return best_factor(gram, y, ridge, stacklevel=5)[1]


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
    scale = float(matrix.diagonal().double().mean())
    if not scale > 0:
        return
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
    # A pivot is a difference of numbers as large as the diagonal entry: below a few eps of that, it is only rounding.
    eps = torch.finfo(matrix.dtype).eps
    reliable = exists and bool((lower.diagonal() ** 2 > 4 * eps * (matrix.diagonal() + shift)).all())
    return lower if reliable else None


def _relative(remainder: Tensor, columns: Tensor) -> float:
    norms = columns.double().norm(dim=0)
    ratios = remainder.double().norm(dim=0) / torch.where(norms > 0, norms, 1)
    return float(ratios.max())


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
    scale = float(gram.detach().diagonal().double().mean())
    if not scale > 0:
        return SingularKernelError(
            f"the Gram matrix has trace(K)/n = {scale:.1e}, so nothing can be learnt from it and no ridge, which is "
            f"relative to trace(K)/n, can help. Expected a positive trace: are all inputs zero? A kernel without "
            f"biases is zero there; pass b_std=0.1 or so."
        )
    largest = _LARGEST_JITTER[gram.dtype]
    return SingularKernelError(
        f"the Gram matrix stays singular with ridge={ridge:.1e} and a jitter of {largest:.0e} trace(K)/n. Is it "
        "positive semidefinite? If not, as label-aware ones, solve it as it is, method='indefinite'; otherwise pass a ridge "
        f"above {max(ridge, largest):.0e}" + (", or compute it in float64." if gram.dtype == torch.float32 else ".")
    )
