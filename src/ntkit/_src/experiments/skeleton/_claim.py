"""What a paper states in words or figures, what was found, and whether it holds: decided by a rule in code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ntkit._src.plots import Table

__all__ = ["Claim", "claims_table"]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that is not a single number.

    Attributes
    ----------
    what
        What is measured.
    paper
        What the paper says.
    found
        What was found here, with the spread over seeds.
    holds
        Whether the requirement on this reproduction holds; None if there is none.
    """

    what: str
    paper: str
    found: str
    holds: bool | None = None

    @property
    def verdict(self) -> str:
        """The words that tables show."""
        return {True: "holds", False: "does not hold", None: "nothing asked"}[self.holds]


def claims_table(claims: Sequence[Claim]) -> Table:
    """Show what the paper says, what was found, and whether it holds."""
    rows = [[one.what, one.paper, one.found, one.verdict] for one in claims]
    caption = (
        "What the paper says, and what was found: mean and standard deviation over seeds. Thresholds are in the code."
    )
    return Table(["what", "paper", "here", "verdict"], rows, caption)
