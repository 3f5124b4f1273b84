"""Symmetric systems that need not be positive definite, by LDL^T factorisation."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit.common import as_columns, check_gram
from ntkit.errors import SingularKernelError
from ntkit.gram import GramOperator

from ._lapack import eigh
from ._method import Method, OnNote, System, relative_residual
from ._solution import Solution
from ._status import Outcome, Status

__all__ = ["LDL", "LDLSystem", "ldl_bytes"]

_REFINEMENTS = 3
_ROUNDING = 10.0  # eigenvalues are rounding up to this many machine epsilons times the largest
_BLOCK_ROWS = 1024


def ldl_bytes(n: int, size: int) -> int:
    """Return the bytes held for n rows: the matrix, its factor, and another copy while that is computed."""
    return 3 * n * n * size


@dataclass(frozen=True)
class LDL(Method):
    r"""A symmetric system as it is, definite or not: :math:`A = K + r \frac{\operatorname{tr} K}{n} I = L D L^T`.

    L is unit triangular up to a permutation, and D has blocks of size one and two (Bunch and Kaufman 1977). By Sylvester's
    law A has as many negative eigenvalues as D. Nothing is added to the diagonal: a shift that makes an indefinite matrix
    definite, larger than its smallest eigenvalue, changes the solution beyond recognition. Use it for kernels that are
    not positive semidefinite, such as :class:`ntkit.LabelAware`; for others Cholesky takes half the time.

    The solution of an indefinite system is a stationary point of :math:`\tfrac12 a^T A a - a^T y`, not a minimum: gradient
    flow does not lead there, and a ridge is no regularisation where it brings a negative eigenvalue closer to zero.

    If A is singular to rounding, the solution is the shortest of the least-squares solutions: A is inverted only on the
    eigenvectors whose eigenvalues are larger than 10 machine epsilons times the largest, all in absolute value. The outcome is
    then :attr:`~ntkit.solvers.Outcome.TRUNCATED`.

    ``stats`` has ``negative``, the number of negative eigenvalues of A, ``condition``, an estimate of the condition number
    of A in the 1-norm, and ``rank``, the number of eigenvalues that were inverted.

    Examples
    --------
    >>> import torch, ntkit
    >>> gram = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)  # eigenvalues 3 and -1
    >>> found = ntkit.solve(gram, torch.tensor([1.0, 5.0], dtype=torch.float64), method="ldl")
    >>> [round(value, 9) for value in found.value.tolist()]
    [3.0, -1.0]
    >>> found.stats["negative"]
    1.0
    """

    def set_up(
        self, gram: GramOperator, ridge: float, y: Tensor | None = None, progress: OnNote | None = None
    ) -> LDLSystem:
        """Factorise.

        Raises
        ------
        SingularKernelError
            If A is zero, or a ridge is asked for although trace(K) is not positive.
        """
        start = time.perf_counter()
        matrix = check_gram(gram.to_dense()).detach()
        scale = float(matrix.diagonal().double().mean())
        if ridge > 0 and not scale > 0:
            raise SingularKernelError(
                f"the ridge is relative to trace(K)/n, which must be positive. Got {scale:.1e}: leave the ridge out, or add "
                "what you mean to the diagonal yourself."
            )
        matrix = matrix.clone()
        matrix.diagonal().add_(ridge * scale)
        if not bool(matrix.any()):
            raise SingularKernelError(
                "the Gram matrix is zero, so nothing can be learnt from it: are all inputs zero? A kernel without biases is "
                "zero there; pass b_std=0.1 or so."
            )
        factor, pivots, info = torch.linalg.ldl_factor_ex(matrix)
        condition = _condition(matrix, factor, pivots) if int(info) == 0 else float("inf")
        system = LDLSystem(matrix, ridge, scale, condition, start, factor, pivots)
        if condition * _ROUNDING * torch.finfo(matrix.dtype).eps < 1:
            return system
        values, vectors = eigh(matrix, overwrite=False)
        return LDLSystem(matrix, ridge, scale, condition, start, values=values, vectors=vectors)


@dataclass(frozen=True)
class LDLSystem(System):
    """A = L D L^T, or if that is singular its eigenvalues and eigenvectors.

    Attributes
    ----------
    matrix
        A, shape (n, n).
    ridge, scale
        The part of A that is a multiple of the identity, relative to trace(K)/n, and trace(K)/n.
    condition
        An estimate of the condition number of A in the 1-norm.
    start
        When the factorisation began, on the clock of ``time.perf_counter``.
    factor, pivots
        L and D in LAPACK's form, shapes (n, n) and (n,); None if A is singular to rounding.
    values, vectors
        Eigenvalues and eigenvectors of A, shapes (n,) and (n, n); None otherwise.
    """

    matrix: Tensor
    ridge: float
    scale: float
    condition: float
    start: float
    factor: Tensor | None = None
    pivots: Tensor | None = None
    values: Tensor | None = None
    vectors: Tensor | None = None

    @property
    def negative(self) -> int:
        """The number of negative eigenvalues of A."""
        if self.values is not None:
            return int((self.values < -self._cut).sum())
        assert self.factor is not None and self.pivots is not None
        # A block of size two, marked by two negative pivots, has one eigenvalue of each sign.
        pairs = self.pivots < 0
        return int(pairs.sum()) // 2 + int((self.factor.diagonal()[~pairs] < 0).sum())

    @property
    def rank(self) -> int:
        """The number of eigenvalues of A that are not rounding."""
        return len(self.matrix) if self.values is None else int((self.values.abs() > self._cut).sum())

    def solve(self, y: Tensor) -> Solution:
        """Solve A a = y for y of shape (n,) or (n, k), with iterative refinement."""
        columns = as_columns(y)
        value = self._invert(columns)
        remainder = self._remainder(columns, value)
        residual, refinements = relative_residual(remainder, columns), 0
        for _ in range(_REFINEMENTS):
            candidate = value + self._invert(remainder)
            remainder = self._remainder(columns, candidate)
            improved = relative_residual(remainder, columns)
            if not improved < 0.5 * residual:
                break
            value, residual, refinements = candidate, improved, refinements + 1
        stats = {
            "residual": residual,
            "ridge": self.ridge,
            "jitter": 0.0,
            "scale": self.scale,
            "negative": float(self.negative),
            "condition": self.condition,
            "rank": float(self.rank),
            "refinements": float(refinements),
            "seconds": time.perf_counter() - self.start,
            "bytes": float(ldl_bytes(len(columns), columns.element_size())),
        }
        return Solution(value.reshape(y.shape), self._status(residual), stats)

    def _status(self, residual: float) -> Status:
        n, negative, rank = len(self.matrix), self.negative, self.rank
        kind = f"indefinite ({negative} of {n} eigenvalues are negative)" if negative else "positive semidefinite"
        if rank < n:
            return Status(
                Outcome.TRUNCATED,
                f"The matrix is numerically singular, and {kind}: solved by least squares on the {rank} of {n} eigenvectors whose "
                f"eigenvalues are not rounding; relative residual {residual:.1e}.",
            )
        how = "LDL^T factorisation" if self.values is None else "eigendecomposition"
        return Status(
            Outcome.SOLVED,
            f"Solved by {how}; the matrix is {kind}, its condition number is about {self.condition:.0e}; relative residual "
            f"{residual:.1e}.",
        )

    @property
    def _cut(self) -> float:
        assert self.values is not None
        return _ROUNDING * torch.finfo(self.values.dtype).eps * float(self.values.abs().max())

    def _invert(self, columns: Tensor) -> Tensor:
        if self.values is None or self.vectors is None:
            assert self.factor is not None and self.pivots is not None
            return _substitute(self.factor, self.pivots, columns)
        kept = self.values.abs() > self._cut
        inverse = torch.where(kept, 1 / torch.where(kept, self.values, 1), 0)
        return self.vectors @ (inverse[:, None] * (self.vectors.mT @ columns))

    def _remainder(self, columns: Tensor, value: Tensor) -> Tensor:
        # A float32 residual formed in float32 is mostly rounding.
        wide = value.double()
        parts = zip(columns.split(_BLOCK_ROWS), self.matrix.split(_BLOCK_ROWS), strict=True)
        return torch.cat([part.double() - rows.double() @ wide for part, rows in parts]).to(columns.dtype)


def _substitute(factor: Tensor, pivots: Tensor, columns: Tensor) -> Tensor:
    found: Tensor = torch.linalg.ldl_solve(factor, pivots, columns)
    return found


def _condition(matrix: Tensor, factor: Tensor, pivots: Tensor) -> float:
    """Estimate the condition number in the 1-norm: Hager's method for the norm of the inverse, as improved by Higham 1988."""
    n = len(matrix)
    places = torch.arange(n, dtype=matrix.dtype, device=matrix.device)
    # A vector against which the steps below have no defence would need to be orthogonal to this one too.
    probe = torch.where(places % 2 == 0, 1, -1) * (1 + places / max(1, n - 1))
    largest = 2 / (3 * n) * float(_substitute(factor, pivots, probe[:, None]).abs().sum())
    x = torch.full_like(probe, 1 / n)
    for _ in range(5):
        image = _substitute(factor, pivots, x[:, None])[:, 0]
        slope = _substitute(factor, pivots, torch.where(image < 0, -1, 1).to(image)[:, None])[:, 0]
        largest = max(largest, float(image.abs().sum()))
        steepest = int(slope.abs().argmax())
        if not float(slope.abs()[steepest]) > float(slope @ x):
            break
        x = torch.zeros_like(x)
        x[steepest] = 1
    return largest * float(matrix.abs().sum(0).max())
