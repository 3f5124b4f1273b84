"""The progress of computing a Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ._resources import bytes_text, seconds_text

__all__ = ["GramProgress", "OnProgress"]


@dataclass(frozen=True)
class GramProgress:
    """The argument of a progress callback, which is called before the first tile and after each.

    Attributes
    ----------
    done, total
        Entries computed so far, including those of earlier runs, and entries in total.
    computed
        Entries that this run computed.
    seconds
        Wall-clock seconds of this run so far.
    stored
        Bytes of the finished matrix, in memory or on disk.
    """

    done: int
    total: int
    computed: int
    seconds: float
    stored: int

    @property
    def rate(self) -> float:
        """Entries per second of this run; 0 before the first tile."""
        return self.computed / self.seconds if self.computed and self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float:
        """Seconds that the rest takes at this rate; infinity before the first tile."""
        if self.done == self.total:
            return 0.0
        return (self.total - self.done) / self.rate if self.rate else float("inf")

    def __str__(self) -> str:
        share = f"{self.done / self.total:.1%} of {self.total:.3g} entries"
        if not self.computed:
            return f"{share} are there; the matrix takes {bytes_text(self.stored)}"
        return f"{share}, {self.rate:.2g} per second, {seconds_text(self.seconds_left)} left"


OnProgress = Callable[[GramProgress], None]
"""A callback for the progress of a Gram matrix; ``print`` works."""
