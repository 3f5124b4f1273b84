"""Which planes of a covariance each plane is computed from.

The plane of offset d holds the entries (p, p + d) for all positions p. An operation that gives the plane d of its output reads
a few planes of its input: an activation, a sum or a convolution of stride one the same plane; a convolution of stride s the plane
s d; pooling with window k and stride s the planes s d + e, |e| < k; flatten the plane zero. So the planes needed are known
from the output back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from ntkit.program import AvgPool, Contract, Conv, Elementwise, Node, Normalize, Reindex

from ._layout import Layout, affine_index

__all__ = ["Offset", "Part", "Plane", "Planes"]

Offset = tuple[int, ...]


class Plane(NamedTuple):
    """One plane of a node's covariance: what it is the plane of, its offset, and whether it holds K rather than H.

    Where planes are computed again for each reader, ``copy`` tells the readers apart.
    """

    node: int
    offset: Offset
    covariance: bool
    copy: Offset = ()


class Part(NamedTuple):
    """What an ordinary offset of a plane is computed from: planes with the ordinary offset they are read at."""

    offset: Offset
    reads: list[tuple[Plane | None, Offset, int]]  # the last number: which input

    @property
    def planes(self) -> list[Plane]:
        """The planes that are read."""
        return [plane for plane, _, _ in self.reads if plane is not None]


class Planes:
    """The planes of one program.

    Parameters
    ----------
    layout
        The program, and what is remembered of each input.
    ntk
        Whether Theta is wanted.
    alone
        Whether each input is paired with itself: then the plane of offset zero holds variances, and H is zero there.
    again
        The pools for which what they read is computed again for each offset along their axis, not kept.
    """

    def __init__(self, layout: Layout, ntk: bool, alone: bool, again: frozenset[int] = frozenset()) -> None:
        self.layout, self.ntk, self.alone, self.again = layout, ntk, alone, again
        self.nodes = layout.program.nodes

    def own_plane(self, index: int) -> Plane:
        """Give the plane that holds the variances of an input."""
        return Plane(index, (0,) * len(self.nodes[index].positions), True)

    def uses(self, roots: list[Plane]) -> Counter[Plane]:
        """Count how often each plane is read on the way to some planes, themselves included."""
        uses = Counter(roots)
        wanted: dict[int, dict[Plane, None]] = {}
        for plane in roots:
            wanted.setdefault(plane.node, {})[plane] = None
        for index in reversed(range(len(self.nodes))):
            queue = list(wanted.get(index, ()))  # grows: a node's K may be made of its H
            for plane in queue:
                for part in self.parts(plane):
                    for read in part.planes:
                        uses[read] += 1
                        planes = wanted.setdefault(read.node, {})
                        if read not in planes:
                            planes[read] = None
                            if read.node == index:
                                queue.append(read)
        return uses

    def converts(self, plane: Plane) -> bool:
        """Tell whether a plane is K made of H."""
        return plane.covariance and not self.layout.linear_after[plane.node] and not self.own(plane)

    def own(self, plane: Plane) -> bool:
        """Tell whether a plane holds variances."""
        return self.alone and plane.covariance and not any(plane.offset)

    def vanishes(self, plane: Plane) -> bool:
        """Tell whether a plane is H of a value with itself, which is zero; its Theta is not."""
        return self.alone and not plane.covariance and not any(plane.offset)

    def _ordinary(self, plane: Plane) -> list[Offset]:
        """Give the offsets that a plane stands for: two for each axis along which it wraps around."""
        positions, cyclic = self.nodes[plane.node].positions, self.layout.cyclic[plane.node]
        if not any(cyclic):
            return [plane.offset]
        choices = [
            (d, d - size) if wraps and d else (d,)
            for d, size, wraps in zip(plane.offset, positions, cyclic, strict=True)
        ]
        return list(product(*choices))

    def _request(
        self, index: int, offset: Offset, covariance: bool, copy: Offset, circular: tuple[int, ...] = ()
    ) -> Plane | None:
        """Give the plane that holds an ordinary offset of a node; None where there is none, or it is zero."""
        positions, cyclic = self.nodes[index].positions, self.layout.cyclic[index]
        found = []
        for axis, (d, size) in enumerate(zip(offset, positions, strict=True)):
            if axis not in circular and abs(d) >= size:
                return None
            found.append(d % size if cyclic[axis] else d)
        if self.alone and not covariance and not any(found) and not circular and not self.ntk:
            return None  # H of a value with itself is zero; windows that wrap around read it all the same
        return Plane(index, tuple(found), covariance, copy)

    def parts(self, plane: Plane) -> list[Part]:
        """Give what each ordinary offset of a plane is computed from."""
        node = self.nodes[plane.node]
        if self.converts(plane):
            h = plane._replace(covariance=False)
            return [Part(offset, [(h, offset, 0)]) for offset in self._ordinary(plane)]
        if self.vanishes(plane):
            return [Part(plane.offset, [(self.own_plane(plane.node), plane.offset, 0)])]
        own = self.own(plane)
        if not own and plane.node in self.layout.fused:
            node = self.nodes[node.inputs[0]]
            covariance = False
        else:
            covariance = own or (plane.covariance and not isinstance(node.op, (Elementwise, Normalize)))
        copy = plane.copy
        if plane.node in self.again:
            assert isinstance(node.op, AvgPool)
            copy = (*copy, plane.offset[node.op.axis])
        parts = []
        for offset in self._ordinary(plane):
            reads: list[tuple[Plane | None, Offset, int]] = []
            inputs = node.inputs[:1] if isinstance(node.op, Normalize) else node.inputs
            for place, read in enumerate(inputs):
                for source in self._source_offsets(node, offset, self.nodes[read].positions):
                    circular = node.op.axes if isinstance(node.op, Conv) and node.op.circular else ()
                    # A pooled variance needs H between the positions of a window.
                    between = own and isinstance(node.op, AvgPool) and any(source)
                    inside = between and not self.layout.linear_after[plane.node]
                    request = self._request(read, source, covariance and not inside, copy, circular)
                    reads.append((request, source, place))
            parts.append(Part(offset, reads))
        return parts

    @staticmethod
    def _source_offsets(node: Node, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        match node.op:
            case Conv() as op:
                scaled = list(offset)
                for axis, stride in zip(op.axes, op.stride, strict=True):
                    scaled[axis] *= stride
                    if op.circular:
                        scaled[axis] %= positions[axis]
                yield tuple(scaled)
            case Reindex() as op:
                scaled = list(offset)
                scaled[op.axis] *= (affine_index(op) or (0, 1))[1]
                yield tuple(scaled)
            case AvgPool() as op:
                for apart in range(1 - op.kernel, op.kernel):
                    moved = list(offset)
                    moved[op.axis] = op.stride * offset[op.axis] + apart
                    yield tuple(moved)
            case Contract() as op:
                rest = iter(offset)
                yield tuple(0 if axis in op.axes else next(rest) for axis in range(len(positions)))
            case _:
                yield offset
