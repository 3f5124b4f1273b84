"""What a paper states in words or figures, what was found, and whether it holds: decided by a rule in code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..plots import Table
from ._verdict import Verdict, both_sizes

__all__ = ["Claim", "claims_table"]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper that is not a single number, or a measurement of ours that the paper does not have.

    Attributes
    ----------
    what
        What is measured.
    paper
        What the paper says; ``"-"`` if it says nothing: then the row is ours, and has no verdict.
    found
        What was found here, with the spread over seeds.
    holds
        Whether what was found is what the quoted words say, at the size of the run. None only if the run is too small to tell.
    size, paper_size
        The run's size and the paper's, in words; the latter is needed where they differ.
    """

    what: str
    paper: str
    found: str
    holds: bool | None = None
    size: str = ""
    paper_size: str = ""

    @property
    def quotes(self) -> bool:
        """Whether the row quotes the paper."""
        return self.paper not in ("", "-")

    @property
    def verdict(self) -> Verdict:
        """What the row says of the sentence that it quotes."""
        if not self.quotes:
            return Verdict.OURS
        return {True: Verdict.HOLDS, False: Verdict.FAILS, None: Verdict.SMALLER}[self.holds]


def claims_table(claims: Sequence[Claim]) -> Table:
    """Show what the paper says, what was found, and whether it holds."""
    rows = [[one.what, one.paper, one.found, both_sizes(one.size, one.paper_size), one.verdict.value] for one in claims]
    caption = (
        "What the paper says, and what was found: mean and standard deviation over seeds. Thresholds are in the code. Ours: a "
        "measurement beside it, of which the paper says nothing."
    )
    return Table(["what", "paper", "here", "size", "verdict"], rows, caption)
