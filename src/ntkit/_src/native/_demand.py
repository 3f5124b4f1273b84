"""Which planes of a covariance each plane is computed from.

The plane of offset d holds the entries (p, p + d) for all positions p. To compute plane d of its output, an operation reads
a few planes of its input: an activation, a sum or a convolution of stride one the same plane; a convolution of stride s the plane
s d; pooling with window k and stride s the planes s d + e, |e| < k; flatten the plane zero. So the output demands planes, these
demand others, and no other plane is ever computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

from ntkit._src.program import Node

from ._network import PlannedNetwork
from ._plane import ALL, Offset, Part, Plane, Read
from .families import known_family


class Demand:
    """The planes that planes of one program are computed from.

    If each input is paired with itself (``alone``), the plane of offset zero holds variances, and H is zero there. ``again`` are
    nodes whose source planes are recomputed for each offset along one axis instead of kept, with that axis.
    """

    def __init__(self, network: PlannedNetwork, ntk: bool, alone: bool, again: Mapping[int, int] | None = None) -> None:
        self.network, self.ntk, self.alone, self.again = network, ntk, alone, again or {}
        self.nodes = network.program.nodes

    def variance_plane(self, index: int) -> Plane:
        """Return the plane that holds the variances of a node."""
        return Plane(index, (0,) * len(self.nodes[index].positions), True)

    def whole(self, index: int, covariance: bool = True) -> Plane:
        """Return every K[p, p'] of a node at once, or every H."""
        return self.variance_plane(index)._replace(covariance=covariance, step=ALL)

    def by_rows(self, index: int) -> bool:
        """Return whether a node's whole covariance is computed entry by entry from those of its inputs, and not from planes."""
        return not self.alone and self.network.by_rows[index]

    def converts_whole(self, plane: Plane) -> bool:
        """Return whether a whole covariance is K computed from H, or H computed from K."""
        if known_family(self.nodes[plane.node].op).whole:
            return not plane.covariance
        return self.by_rows(plane.node) and plane.covariance and not self.network.linear_after[plane.node]

    def uses(self, roots: list[Plane]) -> Counter[Plane]:
        """Count how often each plane is read to compute some planes, including those planes themselves."""
        uses = Counter(roots)
        wanted: dict[int, dict[Plane, None]] = {}
        for plane in roots:
            wanted.setdefault(plane.node, {})[plane] = None
        for index in reversed(range(len(self.nodes))):
            queue = list(wanted.get(index, ()))  # grows, because a node's K may be computed from its H
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
        """Return whether a plane is K computed from H."""
        return (
            plane.covariance
            and not plane.step
            and not self.network.linear_after[plane.node]
            and not self.holds_variances(plane)
        )

    def holds_variances(self, plane: Plane) -> bool:
        """Return whether a plane holds variances."""
        return self.alone and plane.covariance and not any(plane.offset)

    def vanishes(self, plane: Plane) -> bool:
        """Return whether a plane is H of a value with itself, which is zero; its Theta is not."""
        return self.alone and not plane.covariance and not any(plane.offset)

    def parts(self, plane: Plane) -> list[Part]:
        """Return what each ordinary offset of a plane is computed from."""
        if plane.step == ALL:
            return [Part(plane.offset, self._whole_reads(plane))]
        if self.converts(plane):
            h = plane._replace(covariance=False)
            return [Part(offset, [Read(h, offset, 0)]) for offset in self._ordinary(plane)]
        if self.vanishes(plane):
            return [Part(plane.offset, [Read(self.variance_plane(plane.node), plane.offset, 0)])]
        if self.copied(plane.node):
            made = self.whole(plane.node, plane.covariance or not self.by_rows(plane.node))
            return [Part(offset, [Read(made, made.offset, 0)]) for offset in self._ordinary(plane)]
        variances, node = self.holds_variances(plane), self.nodes[plane.node]
        if not variances and plane.node in self.network.fused:
            node, covariance = self.nodes[node.inputs[0]], False
        else:
            covariance = variances or (plane.covariance and not self.network.reads_h[plane.node])
        copy = plane.copy
        if plane.node in self.again:
            copy = (*copy, plane.offset[self.again[plane.node]])
        return [
            Part(offset, self._reads(node, plane.node, offset, variances, covariance, copy))
            for offset in self._ordinary(plane)
        ]

    def copied(self, index: int) -> bool:
        """Return whether the planes of a node are copied out of its whole covariance."""
        return self.by_rows(index) or known_family(self.nodes[index].op).whole

    def _whole_reads(self, plane: Plane) -> list[Read]:
        """Return what a whole covariance is computed from."""
        index, node = plane.node, self.nodes[plane.node]
        family = known_family(node.op)
        if self.converts_whole(plane):
            return [Read(self.whole(index, not plane.covariance), plane.offset, 0)]
        if not family.whole and not self.by_rows(index):
            return [self._natural(index, offset) for offset in self._offsets(index)]
        covariance = family.whole or (plane.covariance and not self.network.reads_h[index])
        if index in self.network.fused:
            node, covariance = self.nodes[node.inputs[0]], False
            family = known_family(node.op)
        reads = []
        for which, read in enumerate(family.inputs(node)):
            source = self.whole(read, covariance)
            reads.append(Read(source, source.offset, which))
        return reads

    def _offsets(self, index: int) -> list[Offset]:
        return list(product(*(range(1 - size, size) for size in self.nodes[index].positions)))

    def _natural(self, index: int, offset: Offset) -> Read:
        """Return the plane of an ordinary offset as it is: H where a nonlinear operation follows, except variances."""
        variances = self.alone and not any(offset)
        return Read(self._request(index, offset, variances or self.network.linear_after[index], (), ()), offset, 0)

    def _reads(
        self, node: Node, index: int, offset: Offset, variances: bool, covariance: bool, copy: Offset
    ) -> list[Read]:
        """Return what an ordinary offset of ``node``, which is computed as part of node ``index``, is computed from."""
        family = known_family(node.op)
        reads = []
        for which, read in enumerate(family.inputs(node)):
            for source in family.sources(node.op, offset, self.nodes[read].positions):
                wants_k = covariance and not family.reads_between(self.network, index, variances, source)
                plane = self._request(read, source, wants_k, copy, family.wrapped_axes(node.op))
                reads.append(Read(plane, source, which))
        return reads

    def _ordinary(self, plane: Plane) -> list[Offset]:
        """Return the offsets that a plane represents: two for each axis along which it wraps around."""
        positions, cyclic = self.nodes[plane.node].positions, self.network.cyclic[plane.node]
        if not any(cyclic):
            return [plane.offset]
        choices = [
            (d, d - size) if wraps and d else (d,)
            for d, size, wraps in zip(plane.offset, positions, cyclic, strict=True)
        ]
        return list(product(*choices))

    def _request(
        self, index: int, offset: Offset, covariance: bool, copy: Offset, wrapped: tuple[int, ...]
    ) -> Plane | None:
        """Return the plane that holds an ordinary offset of a node; None if it has no entries or is zero."""
        positions, cyclic = self.nodes[index].positions, self.network.cyclic[index]
        found = []
        for axis, (d, size) in enumerate(zip(offset, positions, strict=True)):
            if axis not in wrapped and abs(d) >= size:
                return None
            found.append(d % size if cyclic[axis] else d)
        if self.alone and not covariance and not any(found) and not wrapped and not self.ntk:
            return None  # H of a value with itself is zero, although circular windows read it
        return Plane(index, tuple(found), covariance, copy)
