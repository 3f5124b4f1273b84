"""How a solver ended: an outcome that a caller can branch on, and a sentence for people."""

from __future__ import annotations

from enum import Enum

__all__ = ["Outcome", "Status"]


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
