"""The interface of solvers for large systems: settings, then a prepared system, then any number of right-hand sides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ntkit._src.common import shown
from ntkit._src.gram import GramOperator
from ntkit.errors import InputError, InputTypeError

from ._solution import Solution

__all__ = ["Method", "OnNote", "System", "count", "generator", "relative_residual", "trace_mean"]

OnNote = Callable[[str], None]
"""Called with sentences about a run, one at a time; ``print`` works."""


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
    ...     def set_up(self, gram, ridge, y=None, progress=None):
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
    def set_up(
        self, gram: GramOperator, ridge: float, y: Tensor | None = None, progress: OnNote | None = None
    ) -> System:
        """Do what is the same for every right-hand side.

        Parameters
        ----------
        gram : GramOperator of shape (n, n)
            K.
        ridge : float
            Relative to ``trace(K)/n``.
        y : Tensor of shape (n,) or (n, k), optional
            The first right-hand side to be solved for, for methods that read the matrix only once.
        progress : callable, optional
            Called with sentences about the run.
        """


def trace_mean(gram: GramOperator) -> float:
    """Return trace(K)/n."""
    return float(gram.diagonal().double().mean())


def relative_residual(remainder: Tensor, y: Tensor) -> float:
    """Return the largest over the columns of ||remainder|| / ||y||, both of shape (n, k)."""
    norms = y.double().norm(dim=0)
    return float((remainder.double().norm(dim=0) / torch.where(norms > 0, norms, 1)).max())


def count(value: int, name: str, least: int = 1) -> int:
    """Return a whole number of at least ``least``, or raise an error that says what is wrong."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"{name} must be a whole number. Got {shown(value)} of type {type(value).__name__}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}. Got {value}.")
    return value


def generator(seed: int) -> torch.Generator:
    """Return a generator of random numbers on the CPU."""
    return torch.Generator().manual_seed(seed)
