"""What solvers have in common: settings, then a prepared system, then a solution for each right-hand side."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntkit._src.common import available_memory
from ntkit._src.gram import GramOperator
from ntkit.errors import SingularKernelError

OnNote = Callable[[str], None]
"""Called with sentences about a run, one at a time; ``print`` works."""


class Outcome(Enum):
    """How a solver ended.

    Attributes
    ----------
    SOLVED
        The system was solved to the requested accuracy.
    JITTERED
        The matrix is numerically singular: a multiple of the identity was added, and that system was solved.
    TRUNCATED
        The matrix is numerically singular: the shortest least-squares solution was found, without the directions that are
        only rounding.
    APPROXIMATED
        The solution in the span of some centres was found, not that of the whole system.
    NOT_CONVERGED
        The allowed iterations were used up; the value is the best one found.
    """

    SOLVED = "solved"
    JITTERED = "jittered"
    TRUNCATED = "truncated"
    APPROXIMATED = "approximated"
    NOT_CONVERGED = "not converged"


class Status(str):
    """One English sentence about a run, with its :class:`Outcome`.

    Examples
    --------
    >>> status = Status(Outcome.SOLVED, "Solved by Cholesky factorisation.")
    >>> status.outcome is Outcome.SOLVED, status.converged
    (True, True)
    >>> print(status)
    Solved by Cholesky factorisation.
    """

    __slots__ = ("outcome",)
    outcome: Outcome

    def __new__(cls, outcome: Outcome, sentence: str) -> Status:
        status = super().__new__(cls, sentence)
        status.outcome = outcome
        return status

    @property
    def converged(self) -> bool:
        """Whether the solver achieved what was requested."""
        return self.outcome is not Outcome.NOT_CONVERGED

    def __getnewargs__(self) -> tuple[Outcome, str]:  # type: ignore[override]
        return self.outcome, str(self)

    def __str__(self) -> str:
        return str.__str__(self)


@dataclass(frozen=True)
class Solution:
    """The solution of a linear system, how it was reached, and how good it is.

    Attributes
    ----------
    value
        The solution a, shape (n,) or (n, k) like the right-hand side; or (M,) or (M, k) for M centres.
    status
        One English sentence: the method, what had to be added to the matrix, the residual. ``status.outcome``, an
        :class:`~ntkit.solvers.Outcome`, is for programs.
    stats
        Numbers about the run. Every method reports ``residual``, the largest over the columns of
        ``||A a - y|| / ||y||`` for the system A a = y that it solves. Cholesky adds ``ridge`` and ``jitter`` (both as
        multiples of ``trace(K)/n``), ``scale`` (``trace(K)/n``) and ``refinements`` (steps of iterative refinement that
        were kept); :class:`~ntkit.solvers.Indefinite` ``negative``, ``condition`` and ``rank``; methods for
        large n add ``iterations``, ``seconds`` and ``bytes`` (of memory that the method holds), those with centres
        ``misfit``, ``||K_nM a - y|| / ||y||``.
    centres
        For methods with centres their row numbers, shape (M,): f(x) = K(x, X[centres]) a. None: f(x) = K(x, X) a.
    system
        The factorised system, if ``solve`` was called with ``keep_system=True``: ``solution.system.solve(y)`` solves for
        further right-hand sides without factorising again. It holds a matrix of the size of K. None otherwise.

    Examples
    --------
    >>> import torch, ntkit
    >>> solution = ntkit.solve(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([3.0, 3.0]))
    >>> solution.value
    tensor([1., 1.])
    >>> solution.stats["jitter"]
    0.0
    >>> solution.status.outcome
    <Outcome.SOLVED: 'solved'>

    One factorisation for several right-hand sides:

    >>> solution = ntkit.solve(torch.eye(2), torch.ones(2), ridge=1.0, keep_system=True)
    >>> solution.system.solve(torch.tensor([2.0, 4.0])).value
    tensor([1., 2.])
    """

    value: Tensor
    status: Status
    stats: Mapping[str, float]
    centres: Tensor | None = None
    system: System | None = None


class System(ABC):
    """A prepared system: (K + ridge trace(K)/n I) a = y, exactly or in the span of some centres; see :class:`Method`."""

    @abstractmethod
    def solve(self, y: Tensor) -> Solution:
        """Solve for y of shape (n,) or (n, k)."""


class Method(ABC):
    """The settings of one method; a frozen dataclass.

    To solve by a method of your own, write this class with :meth:`set_up`, and a :class:`System` with ``solve``, which
    returns a :class:`~ntkit.solvers.Solution`: :func:`ntkit.solve` and the estimators take it like those of this package.
    Their cost is estimated before they start, and yours is not.

    Examples
    --------
    Richardson's iteration with a step size:

    >>> import torch, ntkit
    >>> from dataclasses import dataclass
    >>> from ntkit.results import Solution
    >>> from ntkit.solvers import Method, Outcome, Status, System
    >>> @dataclass(frozen=True)
    ... class Richardson(Method):
    ...     step: float
    ...     def set_up(self, gram, ridge, y=None, note=None):
    ...         return RichardsonSystem(gram, ridge * float(gram.diagonal().mean()), self.step)
    >>> @dataclass(frozen=True)
    ... class RichardsonSystem(System):
    ...     gram: object
    ...     shift: float
    ...     step: float
    ...     def solve(self, y):
    ...         columns = y if y.ndim == 2 else y[:, None]
    ...         value = torch.zeros_like(columns)
    ...         for _ in range(200):
    ...             remainder = columns - self.gram.product(value) - self.shift * value
    ...             value = value + self.step * remainder
    ...         residual = float(remainder.norm() / columns.norm())
    ...         return Solution(value.reshape(y.shape), Status(Outcome.SOLVED, "200 steps."), {"residual": residual})
    >>> gram = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> ntkit.solve(gram, torch.tensor([3.0, 3.0]), method=Richardson(0.3)).value
    tensor([1., 1.])
    """

    @abstractmethod
    def set_up(self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None) -> System:
        """Do what is the same for every right-hand side.

        Parameters
        ----------
        gram : GramOperator of shape (n, n)
            K.
        ridge : float
            Relative to ``trace(K)/n``.
        y : Tensor of shape (n,) or (n, k), optional
            The first right-hand side to be solved for, for methods that read the matrix only once.
        note : callable, optional
            Called with sentences about the run.
        """


@dataclass(frozen=True)
class ShiftedGram:
    """The matrix A = K + ridge scale I of a large system, scale = trace(K)/n, and who is told about the run."""

    gram: GramOperator
    ridge: float
    scale: float
    on_note: OnNote | None

    @classmethod
    def of(cls, gram: GramOperator, ridge: float, note: OnNote | None) -> ShiftedGram:
        """Read the scale of K; raise SingularKernelError if it is not positive."""
        return cls(gram, ridge, check_scale(float(gram.diagonal().double().mean())), note)

    @property
    def shift(self) -> float:
        """What is added to the diagonal of K."""
        return self.ridge * self.scale

    def apply(self, v: Tensor) -> Tensor:
        """Return A v for v of shape (n, k)."""
        return self.gram.product(v) + self.shift * v

    def note(self, sentence: str) -> None:
        """Report a sentence, if anybody listens."""
        if self.on_note is not None:
            self.on_note(sentence)

    def stats(self, residual: float, start: float, held: float, **more: float) -> dict[str, float]:
        """Return the numbers that every method reports, ``held`` being its bytes, and those that one adds."""
        return run_stats(residual, self.ridge, self.scale, start, held) | more


def run_stats(residual: float, ridge: float, scale: float, start: float, held: float) -> dict[str, float]:
    """Return what every method for large systems reports about a run that began at ``start`` and holds ``held`` bytes."""
    stats = {"residual": residual, "ridge": ridge, "jitter": 0.0, "scale": scale}
    return stats | {"seconds": time.perf_counter() - start, "bytes": float(held)}


def memory_limit(memory: int | None) -> int:
    """Return the bytes that may be used: as given, or four fifths of what is available."""
    return int(0.8 * available_memory()) if memory is None else memory


def check_scale(scale: float) -> float:
    """Return trace(K)/n, or raise SingularKernelError if it is not positive."""
    if not scale > 0:
        raise SingularKernelError(
            f"the Gram matrix has trace(K)/n = {scale:.1e}, so nothing can be learnt from it and no ridge, which is "
            "relative to trace(K)/n, can help. Expected a positive trace: are all inputs zero? A kernel without biases is "
            "zero there; pass b_std=0.1 or so."
        )
    return scale


def read_rows(file: Path, dtype: torch.dtype, rows: slice, width: int) -> Tensor:
    """Read some rows of a matrix of this width that was written to a file row by row."""
    kind = np.float32 if dtype == torch.float32 else np.float64
    count, offset = (rows.stop - rows.start) * width, rows.start * width * dtype.itemsize
    return torch.from_numpy(np.fromfile(file, kind, count=count, offset=offset).reshape(-1, width))


def relative_residual(remainder: Tensor, y: Tensor) -> float:
    """Return the largest over the columns of ||remainder|| / ||y||, both of shape (n, k)."""
    norms = y.double().norm(dim=0)
    return float((remainder.double().norm(dim=0) / torch.where(norms > 0, norms, 1)).max())
