"""The exceptions and warnings of ntkit.

Every exception inherits :class:`NtkitError` and the built-in that a caller who does not know ntkit would catch.
Messages say what was wrong, what was expected, what was found, and what to write instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn.exceptions import NotFittedError as _SklearnNotFittedError

__all__ = [
    "AccuracyWarning",
    "DivergenceWarning",
    "EngineError",
    "InputError",
    "InputTypeError",
    "JitterWarning",
    "MemoryLimitError",
    "MissingDependencyError",
    "NotFittedError",
    "NtkitError",
    "NtkitWarning",
    "Problem",
    "QuadratureError",
    "QuadratureWarning",
    "SingularKernelError",
    "StoreError",
    "UnsupportedLayerError",
    "WorkerError",
]


class NtkitError(Exception):
    """Base of every exception that ntkit raises on purpose."""


class InputError(NtkitError, ValueError):
    """Data with the wrong shape, no rows, or values that are not finite."""


class InputTypeError(NtkitError, TypeError):
    """Data of the wrong type, dtype or device."""


class EngineError(NtkitError, RuntimeError):
    """A request to run a program on an engine that does not support it."""


class MissingDependencyError(NtkitError, ImportError):
    """An optional package that a function needs and that is not installed."""


class SingularKernelError(NtkitError, ArithmeticError):
    """A Gram matrix that stays singular after the largest allowed jitter."""


class QuadratureError(NtkitError, ArithmeticError):
    """A Gaussian expectation of an activation that diverges, or whose estimated relative error exceeds 1e-6."""


class MemoryLimitError(NtkitError, MemoryError):
    """A computation refused before it starts because it does not fit into memory; the message says what would fit."""


class StoreError(NtkitError, OSError):
    """A stored Gram matrix that cannot be written or read, or that belongs to other data or another kernel."""


class WorkerError(NtkitError, RuntimeError):
    """A worker of a cluster that lacks ntkit, has another version of it, or was lost too often."""


@dataclass(frozen=True)
class Problem:
    """One place in a module that has no closed-form infinite-width limit.

    Attributes
    ----------
    path
        Path of the place in the module, such as ``"blocks.0.pool"``.
    what
        The layer or operation found there.
    reason
        Why the limit has no closed form.
    instead
        What to write or use instead.
    """

    path: str
    what: str
    reason: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}: {self.what}: {self.reason}\n    instead: {self.instead}"


class UnsupportedLayerError(NtkitError, NotImplementedError):
    """A module with parts that have no closed-form infinite-width limit; lists all of them.

    Attributes
    ----------
    problems
        Every place found, in the order of execution.
    """

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        places = "place has" if len(problems) == 1 else "places have"
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{len(problems)} {places} no closed-form infinite-width limit:\n{lines}")

    def __reduce__(self) -> tuple[type[UnsupportedLayerError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class NtkitWarning(UserWarning):
    """Base of every warning that ntkit issues."""


class AccuracyWarning(NtkitWarning):
    """A sampled expectation whose standard error stayed above the requested accuracy."""


class QuadratureWarning(NtkitWarning):
    """An integral that is less accurate than promised: a Gaussian expectation with a relative error of 1e-10 to 1e-6."""


class DivergenceWarning(NtkitWarning):
    """Training that diverged and was stopped."""


class JitterWarning(NtkitWarning):
    """A Gram matrix that needed a multiple of the identity added before it could be factorised."""


if TYPE_CHECKING:

    class NotFittedError(InputError, _SklearnNotFittedError):  # type: ignore[misc]
        """A request for a result before ``fit``."""


def __getattr__(name: str) -> object:
    """Make ``NotFittedError`` at its first use: its base is scikit-learn's, whose import takes most of a second."""
    if name != "NotFittedError":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sklearn import exceptions

    bases = (InputError, exceptions.NotFittedError)
    made = type(name, bases, {"__doc__": "A request for a result before ``fit``.", "__module__": __name__})
    return globals().setdefault(name, made)
