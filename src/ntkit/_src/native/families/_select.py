"""Planes of positions read from elsewhere: x'[q] = x[s(q)], so K'[q, q + d] is an entry of the plane s(q + d) - s(q)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _core
from .._plane import Part, Plane

if TYPE_CHECKING:
    from .._emitter import Emitter


def select_planes(emitter: Emitter, plane: Plane, parts: list[Part], operation: int, zeros: bool) -> None:
    """Emit the copies of the planes that are read; first what no plane gives. ``zeros``: some positions are zero."""
    emitter.take_slot(plane)
    for part in parts:
        if zeros or not part.reads or len(part.planes) < len(part.reads):
            emitter.emit(_core.Kind.SELECT, operation, plane, part.offset)
        for read, source, _ in part.reads:
            if read is not None:
                emitter.compute(read)
                emitter.emit(_core.Kind.SELECT, operation, plane, part.offset, read, source)
                emitter.release(read)


def strides(size: list[int]) -> list[int]:
    """Give how far apart neighbours along each axis are stored, in positions."""
    return [size[1] * size[2], size[2], 1]
