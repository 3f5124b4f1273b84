"""Symmetric systems that need not be positive semidefinite, solved as they are."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_gram
from ntkit._src.gram import GramOperator
from ntkit.errors import SingularKernelError

from ._cholesky import dense_remainder, refine
from ._lapack import cholesky, eigh
from ._method import Method, OnNote, Outcome, Solution, Status, System, relative_residual, run_stats

_ROUNDING = 10.0  # eigenvalues are rounding up to this many machine epsilons times the largest


def indefinite_bytes(n: int) -> int:
    """Return the bytes held for n rows at most: the matrix, and in float64 its eigenvectors and their workspace."""
    return 4 * n * n * 8


@dataclass(frozen=True)
class Indefinite(Method):
    r"""A symmetric system as it is, definite or not, for kernels such as :class:`ntkit.LabelAware`.

    Without a ridge the system is :math:`K a = y`, solved by an :math:`L D L^T` factorisation (Bunch and Kaufman 1977), whose D
    has as many negative eigenvalues as K. Nothing is added to the diagonal: what would make an indefinite matrix definite,
    more than the size of its smallest eigenvalue, can hide the kernel behind a multiple of the identity.

    A ridge on the diagonal would bring the negative eigenvalues closer to zero, the opposite of what a ridge is for. So it
    is added to the absolute values,

    .. math:: \Bigl(K + r\,\frac{\operatorname{tr} |K|}{n} \operatorname{sgn} K\Bigr)\, a = y,
              \qquad a = \arg\min_a \|K a - y\|^2 + r\,\frac{\operatorname{tr} |K|}{n}\, a^T |K|\, a,

    functions of K being those of its eigenvalues: ridge regression in the Krein space of the kernel (Oglic and Gärtner
    2018). This takes an eigendecomposition, ten times the time. For a positive semidefinite K it is the usual ridge.

    If K is singular to rounding and there is no ridge, the solution is the shortest of the least-squares solutions: K is
    inverted only on the eigenvectors whose eigenvalues are above 10 machine epsilons times the largest, all in absolute value.
    The outcome is then :attr:`~ntkit.solvers.Outcome.TRUNCATED`.

    ``stats`` has ``negative``, the number of negative eigenvalues of K, ``condition``, the condition number of the system
    (after a factorisation estimated, in the 1-norm), and ``rank``, the number of eigenvalues that were inverted.

    References
    ----------
    .. [1] Bunch, Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", 1977.
    .. [2] Oglic, Gärtner, "Learning in Reproducing Kernel Kreĭn Spaces", 2018.

    Examples
    --------
    >>> import torch, ntkit
    >>> gram = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)  # eigenvalues 3 and -1
    >>> found = ntkit.solve(gram, torch.tensor([1.0, 5.0], dtype=torch.float64), method="indefinite")
    >>> [round(value, 9) for value in found.value.tolist()]
    [3.0, -1.0]
    >>> found.stats["negative"]
    1.0
    """

    def set_up(self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None) -> System:
        """Factorise, or decompose if there is a ridge or the matrix is singular.

        Raises
        ------
        SingularKernelError
            If K is zero.
        """
        start = time.perf_counter()
        k = check_gram(gram.to_dense()).detach()
        if not bool(k.any()):
            raise SingularKernelError(
                "the Gram matrix is zero, so nothing can be learnt from it: are all inputs zero? A kernel without biases is "
                "zero there; pass b_std=0.1 or so."
            )
        rounding = _ROUNDING * torch.finfo(k.dtype).eps
        norm = float(k.abs().sum(0).max())  # the 1-norm, at least the largest eigenvalue
        if ridge > 0 and not cholesky(k, rounding * norm)[1]:
            return _Decomposed.of(k, ridge, rounding, start)
        scale = float(k.diagonal().double().mean())
        matrix = k.clone()
        matrix.diagonal().add_(ridge * scale)
        factor, pivots, info = torch.linalg.ldl_factor_ex(matrix)
        if int(info) == 0:
            condition = _inverse_norm(factor, pivots) * float(matrix.abs().sum(0).max())
            if condition * rounding < 1:
                return _Factored(matrix, factor, pivots, condition, ridge, scale, start)
        return _Decomposed.of(k, ridge, rounding, start)


@dataclass(frozen=True)
class _Factored(System):
    """A = K + ridge scale I = L D L^T, with L and D in LAPACK's form."""

    matrix: Tensor
    factor: Tensor
    pivots: Tensor
    condition: float
    ridge: float
    scale: float
    start: float

    def solve(self, y: Tensor) -> Solution:
        columns = as_columns(y)
        value, residual, refinements = refine(
            lambda right: _substitute(self.factor, self.pivots, right),
            lambda one: dense_remainder(self.matrix, 0.0, columns, one),
            columns,
        )
        # A block of size two of D, marked by two negative pivots, has one eigenvalue of each sign.
        pairs = self.pivots < 0
        negative = int(pairs.sum()) // 2 + int((self.factor.diagonal()[~pairs] < 0).sum())
        n = len(columns)
        sentence = (
            f"Solved by LDL^T factorisation; the matrix is {_kind(negative, n)}, its condition number is about "
            f"{self.condition:.0e}; relative residual {residual:.1e}."
        )
        stats = _stats(self, residual, negative, self.condition, n, refinements)
        return Solution(value.reshape(y.shape), Status(Outcome.SOLVED, sentence), stats)


@dataclass(frozen=True)
class _Decomposed(System):
    """A = V (diag(values) + ridge scale diag(signs)) V^T in float64, scale the mean of the eigenvalues' absolute values.

    Values and signs, shape (n,): zero where an eigenvalue is rounding, whose sign is one.
    """

    matrix: Tensor
    values: Tensor
    vectors: Tensor
    signs: Tensor
    ridge: float
    scale: float
    start: float

    @classmethod
    def of(cls, k: Tensor, ridge: float, rounding: float, start: float) -> _Decomposed:
        values, vectors = eigh(k.double(), overwrite=k.dtype != torch.float64)
        values = torch.where(values.abs() > rounding * values.abs().max(), values, 0)
        signs = torch.where(values < 0, -1.0, 1.0).to(values)
        return cls(k, values, vectors, signs, ridge, float(values.abs().mean()), start)

    def solve(self, y: Tensor) -> Solution:
        columns = as_columns(y)
        added = self.ridge * self.scale * self.signs
        shifted = self.values + added
        kept = shifted != 0
        inverse = torch.where(kept, 1 / torch.where(kept, shifted, 1), 0)
        value = (self.vectors @ (inverse[:, None] * (self.vectors.mT @ columns.double()))).to(columns)
        ridged = self.vectors @ (added[:, None] * (self.vectors.mT @ value.double()))
        residual = relative_residual(dense_remainder(self.matrix, 0.0, columns, value).double() - ridged, columns)
        n, rank, negative = len(columns), int(kept.sum()), int((self.values < 0).sum())
        sizes = shifted[kept].abs()
        condition = float(sizes.max() / sizes.min())
        if rank < n:
            status = Status(
                Outcome.TRUNCATED,
                f"The matrix is numerically singular, and {_kind(negative, n)}: solved by least squares on the {rank} of {n} "
                f"eigenvectors whose eigenvalues are not rounding; relative residual {residual:.1e}.",
            )
        else:
            ridge = f" with a ridge of {self.ridge:.1e} on their absolute values" if self.ridge else ""
            status = Status(
                Outcome.SOLVED,
                f"Solved by eigenvalues{ridge}; the matrix is {_kind(negative, n)}, the condition number is {condition:.0e}; "
                f"relative residual {residual:.1e}.",
            )
        stats = _stats(self, residual, negative, condition, rank, 0)
        return Solution(value.reshape(y.shape), status, stats)


def _kind(negative: int, n: int) -> str:
    return f"indefinite ({negative} of {n} eigenvalues are negative)" if negative else "positive semidefinite"


def _stats(
    system: _Factored | _Decomposed, residual: float, negative: int, condition: float, rank: int, refinements: int
) -> dict[str, float]:
    more = {"negative": float(negative), "condition": condition, "rank": float(rank), "refinements": float(refinements)}
    held = indefinite_bytes(len(system.matrix))
    return run_stats(residual, system.ridge, system.scale, system.start, held) | more


def _substitute(factor: Tensor, pivots: Tensor, columns: Tensor) -> Tensor:
    found: Tensor = torch.linalg.ldl_solve(factor, pivots, columns)
    return found


def _inverse_norm(factor: Tensor, pivots: Tensor) -> float:
    """Estimate the 1-norm of the inverse from below: Hager's method, as improved by Higham 1988."""
    n = len(factor)
    places = torch.arange(n, dtype=factor.dtype, device=factor.device)
    # The steps below stop at once where the inverse maps ones to ones; this vector sees the rest of it.
    probe = torch.where(places % 2 == 0, 1, -1) * (1 + places / max(1, n - 1))
    largest = 2 / (3 * n) * float(_substitute(factor, pivots, probe[:, None]).abs().sum())
    x = torch.full_like(probe, 1 / n)
    for _ in range(5):
        image = _substitute(factor, pivots, x[:, None])[:, 0]
        largest = max(largest, float(image.abs().sum()))
        slope = _substitute(factor, pivots, torch.where(image < 0, -1, 1).to(image)[:, None])[:, 0]
        steepest = int(slope.abs().argmax())
        if not float(slope.abs()[steepest]) > float(slope @ x):
            break
        x = torch.zeros_like(x)
        x[steepest] = 1
    return largest
