"""Planes of a covariance: the entries K[p, p + d] of one offset d, for all positions p."""

from __future__ import annotations

from typing import NamedTuple

Offset = tuple[int, ...]
"""d, one number per position axis."""


class Plane(NamedTuple):
    """One plane of the covariance of a node's value.

    Attributes
    ----------
    node
        Index of the node in the program.
    offset
        d, one number per position axis; along axes that wrap around, between 0 and the length.
    covariance
        Whether it holds K rather than H = (q + q') / 2 - K.
    copy
        Distinguishes the readers of a plane that is recomputed for each of them.
    step
        Names an intermediate result that is a plane too; empty for the node's own.
    """

    node: int
    offset: Offset
    covariance: bool
    copy: Offset = ()
    step: str = ""


class Read(NamedTuple):
    """One plane that another is computed from.

    Attributes
    ----------
    plane
        The plane; None if it is zero or has no entries.
    offset
        The ordinary offset at which it is read: a plane that wraps around has two per axis.
    which
        Which of the operation's inputs it belongs to.
    """

    plane: Plane | None
    offset: Offset
    which: int


class Part(NamedTuple):
    """What the entries of one ordinary offset of a plane are computed from.

    Attributes
    ----------
    offset
        The ordinary offset; a plane that wraps around has several parts.
    reads
        The planes read.
    """

    offset: Offset
    reads: list[Read]

    @property
    def planes(self) -> list[Plane]:
        """The planes that are read and not zero."""
        return [read.plane for read in self.reads if read.plane is not None]
