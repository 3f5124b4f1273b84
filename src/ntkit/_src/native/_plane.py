"""Planes of a covariance: the entries K[p, p + d] of one offset d, for all positions p."""

from __future__ import annotations

from typing import NamedTuple

Offset = tuple[int, ...]
"""d, one number per position axis."""


class Plane(NamedTuple):
    """One plane of the covariance of a node's value."""

    node: int  # its index in the program
    offset: Offset  # d; along axes that wrap around, between 0 and the length
    covariance: bool  # whether it holds K rather than H = (q + q') / 2 - K
    copy: Offset = ()  # distinguishes the readers of a plane that is recomputed for each of them
    step: str = ""  # names an intermediate result that is a plane too; empty for the node's own


ALL = "all"
"""The step of a whole covariance: every K[p, p'] of a value, or every H, at once."""


class Read(NamedTuple):
    """One plane that another is computed from."""

    plane: Plane | None  # None if it is zero or has no entries
    offset: Offset  # the ordinary offset at which it is read: a plane that wraps around has two per axis
    which: int  # which of the operation's inputs it belongs to


class Part(NamedTuple):
    """What the entries of one ordinary offset of a plane are computed from; a plane that wraps around has several parts."""

    offset: Offset
    reads: list[Read]

    @property
    def planes(self) -> list[Plane]:
        """The planes that are read and not zero."""
        return [read.plane for read in self.reads if read.plane is not None]
