"""From a program to a tape: which planes of each covariance are needed, and in which order they are computed.

The plane of offset d holds the entries (p, p + d) for all positions p. An operation that gives the plane d of its output reads
a few planes of its input: an activation, a sum or a convolution of stride one the same plane; a convolution of stride s the plane
s d; pooling with window k and stride s the planes s d + e, |e| < k; flatten the plane zero. So the planes needed are known
from the output back, and each is computed once, kept while it is needed, and its memory used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from itertools import product
from math import comb
from typing import NamedTuple

import numpy as np

from ntkit.program import (
    AvgPool,
    Concat,
    Constant,
    Contract,
    Conv,
    Dense,
    Elementwise,
    Input,
    Node,
    Normalize,
    Reindex,
    Sum,
)
from ntkit.rules import odd_factorial

from . import _core
from ._layout import AXES, SMOOTH, Layout, Own, affine_index, layer_constants, pool_weights

__all__ = ["TapePlan", "plan_cross", "plan_self"]

Offset = tuple[int, ...]

_FEW_TERMS = 4  # sums of more planes are taken in double precision


class Plane(NamedTuple):
    """One plane of a node's covariance: what it is the plane of, its offset, and whether it holds K rather than H."""

    node: int
    offset: Offset
    covariance: bool


class _Kind(IntEnum):
    """The instructions of the core, in its order."""

    INPUT = 0
    LAYER = 1
    RECTIFIED = 2
    SMOOTH = 3
    NORMALIZE = 4
    CLEAR = 5
    POOL = 6
    OWN_POOL = 7
    POOL_END = 8
    OWN_POOL_END = 9
    REDUCE = 10
    SETTLE = 11
    COMBINE = 12
    CONVERT = 13
    STORE = 14
    OUTPUT = 15


class _Flag(IntFlag):
    THETA_IN = 1
    THETA_OUT = 2
    COVARIANCE_IN = 4
    COVARIANCE_OUT = 8
    OWN_ONLY = 16


@dataclass(frozen=True)
class TapePlan:
    """A tape and what it must be given.

    Attributes
    ----------
    tape
        The instructions, in the core.
    inputs
        The operations whose data it reads, in order; each input's numbers are (channels, positions).
    data_size, own_size
        How many numbers it reads of each input: data, and what is remembered of it on its own.
    batch
        How many blocks of pairs it runs at once: more than one where no value has positions.
    planes
        How many planes it computes, all nodes together.
    """

    tape: _core.Tape
    inputs: tuple[Input, ...]
    data_size: int
    own_size: int
    batch: int
    planes: int

    @property
    def row_numbers(self) -> int:
        """How many numbers the tape reads of each input."""
        return self.data_size + self.own_size


def plan_cross(layout: Layout, ntk: bool) -> TapePlan:
    """Plan the kernels between two inputs of which what is remembered is known."""
    planner = _Planner(layout, ntk, alone=False)
    output = Plane(layout.program.output, (), True)
    planner.count([output])
    planner.finish(output)
    return planner.plan()


def plan_self(layout: Layout, ntk: bool, output: bool) -> TapePlan:
    """Plan what is remembered of each input on its own, and, where ``output``, its kernels with itself."""
    planner = _Planner(layout, ntk and output, alone=True)
    nodes = layout.program.nodes
    stores = []
    for kind, index in layout.own:
        source = nodes[index].inputs[-1] if kind in (Own.DEVIATION, Own.SCALE) else index
        stores.append((source, kind, index))
    stores.sort()  # what is remembered of a node is there before anything that follows the node needs it
    final = Plane(layout.program.output, (), True)
    planner.count([planner.own_plane(source) for source, _, _ in stores] + ([final] if output else []))
    for source, kind, index in stores:
        plane = planner.own_plane(source)
        planner.compute(plane)
        if kind not in (Own.INSIDE, Own.MEAN):  # those are stored on the way
            planner.store(kind, index, plane)
        planner.release(plane)
    if output:
        planner.finish(final)
    return planner.plan()


class _Part(NamedTuple):
    """What an ordinary offset of a plane is computed from: planes with the ordinary offset they are read at."""

    offset: Offset
    reads: list[tuple[Plane | None, Offset, int]]  # the last number: which input


class _Planner:
    def __init__(self, layout: Layout, ntk: bool, alone: bool) -> None:
        self.layout, self.ntk, self.alone = layout, ntk, alone
        self.nodes = layout.program.nodes
        self.batch = layout.batch
        self.operations: list[list[int]] = []
        self.constants: list[list[float]] = []
        self.factors: list[list[float]] = []
        self.counts: list[list[float]] = []
        self.instructions: list[list[int]] = []
        self.instruction_factors: list[float] = []
        self.inputs: list[Input] = []
        self.data_sizes: list[int] = []
        self.planes = 0
        self._longest_row = 1
        self._wide_positions = 1
        self._uses: Counter[Plane] = Counter()
        self._slot: dict[Plane, int] = {}
        self._free: list[int] = []
        self._slots = 0
        self._free_wide: list[int] = []
        self._wide = 0
        self._operation_of = [self._operation(index, node) for index, node in enumerate(self.nodes)]

    # -- what is needed ------------------------------------------------------------------------------------------------

    def own_plane(self, index: int) -> Plane:
        """Give the plane that holds the variances of an input."""
        return Plane(index, (0,) * len(self.nodes[index].positions), True)

    def count(self, roots: list[Plane]) -> None:
        """Count how often each plane is read, so that its slot is free after the last time."""
        wanted: dict[int, dict[Plane, None]] = {}
        # A node's K is made of its H, so H comes after K.
        for plane in roots:
            self._uses[plane] += 1
            wanted.setdefault(plane.node, {})[plane] = None
        for index in reversed(range(len(self.nodes))):
            queue = list(wanted.get(index, ()))
            for plane in queue:
                for read in self._all_reads(plane):
                    self._uses[read] += 1
                    planes = wanted.setdefault(read.node, {})
                    if read not in planes:
                        planes[read] = None
                        if read.node == index:
                            queue.append(read)

    def _all_reads(self, plane: Plane) -> Iterator[Plane]:
        for part in self._parts(plane):
            for read, _, _ in part.reads:
                if read is not None:
                    yield read

    def _converts(self, plane: Plane) -> bool:
        return plane.covariance and not self.layout.linear_after[plane.node] and not self._own(plane)

    def _own(self, plane: Plane) -> bool:
        return self.alone and plane.covariance and not any(plane.offset)

    def _vanishes(self, plane: Plane) -> bool:
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

    def _request(self, index: int, offset: Offset, covariance: bool, circular: tuple[int, ...] = ()) -> Plane | None:
        """Give the plane that holds an ordinary offset of a node; None where there is none, or it is zero."""
        positions, cyclic = self.nodes[index].positions, self.layout.cyclic[index]
        found = []
        for axis, (d, size) in enumerate(zip(offset, positions, strict=True)):
            if axis not in circular and abs(d) >= size:
                return None
            found.append(d % size if cyclic[axis] else d)
        if self.alone and not covariance and not any(found) and not circular and not self.ntk:
            return None  # H of a value with itself is zero; windows that wrap around read it all the same
        return Plane(index, tuple(found), covariance)

    def _parts(self, plane: Plane) -> list[_Part]:
        """Give what each ordinary offset of a plane is computed from."""
        node = self.nodes[plane.node]
        if self._converts(plane):
            h = Plane(plane.node, plane.offset, False)
            return [_Part(offset, [(h, offset, 0)]) for offset in self._ordinary(plane)]
        if self._vanishes(plane):
            return [_Part(plane.offset, [(self.own_plane(plane.node), plane.offset, 0)])]
        own = self._own(plane)
        if not own and plane.node in self.layout.fused:
            node = self.nodes[node.inputs[0]]
            covariance = False
        else:
            covariance = own or (plane.covariance and not isinstance(node.op, (Elementwise, Normalize)))
        parts = []
        for offset in self._ordinary(plane):
            reads: list[tuple[Plane | None, Offset, int]] = []
            inputs = node.inputs[:1] if isinstance(node.op, Normalize) else node.inputs
            for place, read in enumerate(inputs):
                for source in self._source_offsets(node, offset, self.nodes[read].positions):
                    if (
                        own
                        and isinstance(node.op, AvgPool)
                        and any(source)
                        and not self.layout.linear_after[plane.node]
                    ):
                        found = self._request(read, source, False)
                    else:
                        circular = node.op.axes if isinstance(node.op, Conv) and node.op.circular else ()
                        found = self._request(read, source, covariance, circular)
                    reads.append((found, source, place))
            parts.append(_Part(offset, reads))
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

    # -- in which order ------------------------------------------------------------------------------------------------

    def compute(self, plane: Plane) -> None:
        """Emit the instructions of a plane, after those of the planes it reads, unless it is there already."""
        if plane in self._slot:
            return
        parts = self._parts(plane)
        node = self.nodes[plane.node]
        self.planes += 1
        if self._converts(plane):
            self._one_by_one(_Kind.CONVERT, plane, parts)
            return
        if self._vanishes(plane):
            self._one_by_one(_Kind.CLEAR, plane, parts)  # Theta is that of the value with itself
            return
        match node.op:
            case AvgPool():
                self._pool(plane, parts)
            case Contract():
                self._accumulate(_Kind.REDUCE, plane, parts, [1.0], wide=True)
            case Sum():
                self._accumulate(_Kind.COMBINE, plane, parts, [c * c for c in node.op.coefficients], wide=False)
            case Concat():
                self._accumulate(_Kind.COMBINE, plane, parts, list(node.op.fractions), wide=False)
            case Constant():
                self._take_slot(plane)
                value = node.op.value**2 if plane.covariance else 0.0
                operation = self._constant(plane.node, value)
                for part in parts:
                    self.emit(_Kind.CLEAR, operation, plane, part.offset)
            case Elementwise(phi=phi):
                kind = _Kind.RECTIFIED if phi.name == "rectified" else _Kind.SMOOTH
                if plane.node in self.layout.fused and not self._own(plane):
                    kind = _Kind.LAYER
                self._one_by_one(kind, plane, parts)
            case Normalize():
                self._one_by_one(_Kind.NORMALIZE, plane, parts)
            case Input():
                self._one_by_one(_Kind.INPUT, plane, parts)
            case _:
                self._one_by_one(_Kind.LAYER, plane, parts)

    def _one_by_one(self, kind: _Kind, plane: Plane, parts: list[_Part]) -> None:
        for part in parts:
            for read, _, _ in part.reads:
                if read is not None:
                    self.compute(read)
        self._take_slot(plane)
        operation = self._operation_of[plane.node]
        if kind is _Kind.CLEAR:
            operation = self._constant(plane.node, 0.0)
        for part in parts:
            read, source = part.reads[0][:2] if part.reads else (None, part.offset)
            self.emit(kind, operation, plane, part.offset, read, source, self._mask(plane))
        for part in parts:
            for read, _, _ in part.reads:
                if read is not None:
                    self.release(read)

    def _mask(self, plane: Plane) -> float:
        """One where affine parameters of a normalisation are the same at both positions, zero elsewhere."""
        node = self.nodes[plane.node]
        if isinstance(node.op, Elementwise):
            node = self.nodes[node.inputs[0]]
        if not isinstance(node.op, Normalize):
            return 1.0
        return 0.0 if any(plane.offset[axis] for axis in node.op.affine_axes) else 1.0

    def _accumulate(
        self, kind: _Kind, plane: Plane, parts: list[_Part], factors: list[float], wide: bool, index: int | None = None
    ) -> None:
        index = plane.node if index is None else index
        operation = self._operation_of[index]
        place = self._take_wide(index) if wide else self._take_slot(plane)
        for part in parts:
            self.emit(_Kind.CLEAR, operation, plane, part.offset, place=place)
            for read, source, which in part.reads:
                if read is not None:
                    self.compute(read)
                    self.emit(kind, operation, plane, part.offset, read, source, factors[which % len(factors)], place)
                    self.release(read)
        if wide:
            slot = self._take_slot(plane)
            for part in parts:
                self.emit(_Kind.SETTLE, operation, plane, part.offset, place=slot, start=place)
            self._free_wide.append(place)

    def _pool(self, plane: Plane, parts: list[_Part]) -> None:
        op = self.nodes[plane.node].op
        assert isinstance(op, AvgPool)
        operation = self._operation_of[plane.node]
        if self._own(plane) and not self.layout.linear_after[plane.node]:
            self._own_pool(plane, parts[0], operation)
            return
        self._accumulate(_Kind.POOL, plane, parts, [1.0], wide=op.kernel > _FEW_TERMS)
        if not plane.covariance:
            for part in parts:
                self.emit(_Kind.POOL_END, operation, plane, part.offset)

    def _own_pool(self, plane: Plane, part: _Part, operation: int) -> None:
        """Emit the variance of a mean, N B - A, from the mean B of the variances and what varies inside the window, A."""
        index = plane.node
        op = self.nodes[index].op
        assert isinstance(op, AvgPool)
        apart = [read for read in part.reads if any(read[1])]
        same = next(read for read, source, _ in part.reads if not any(source))
        assert same is not None
        inside = Plane(-1 - len(self.nodes) - index, plane.offset, False)  # a name for the plane that holds A
        self._accumulate(_Kind.POOL, inside, [_Part(part.offset, apart)], [1.0], op.kernel > _FEW_TERMS, index)
        if (Own.INSIDE, index) in self.layout.own:
            self.store(Own.INSIDE, index, inside)
        self.compute(same)
        mean = Plane(-1 - index, plane.offset, True)
        self._take_slot(mean)
        self._append(
            _Kind.OWN_POOL, operation, self._slot[mean], self._slot[same], self._theta(same, plane) | _Flag.OWN_ONLY
        )
        self.release(same)
        if (Own.MEAN, index) in self.layout.own:
            self.store(Own.MEAN, index, mean)
        self._append(
            _Kind.OWN_POOL_END,
            operation,
            self._slot[inside],
            self._slot[mean],
            self._theta(same, plane) | _Flag.OWN_ONLY,
        )
        self._free.append(self._slot.pop(mean))
        self._slot[plane] = self._slot.pop(inside)

    def finish(self, plane: Plane) -> None:
        """Compute a plane and hand it over as the result."""
        self.compute(plane)
        self._append(
            _Kind.OUTPUT,
            self._operation_of[plane.node],
            self._slot[plane],
            self._slot[plane],
            self._theta(plane, plane),
        )
        self.release(plane)

    def store(self, kind: Own, index: int, plane: Plane) -> None:
        """Remember something of each input."""
        sizes = self._three(self.nodes[index].positions, 1)
        if self.batch > 1:
            sizes = [1, 1, self.batch]
        constants = [0.0] * 8
        op = self.nodes[index].op
        if isinstance(op, Normalize):
            constants[0], constants[3] = op.eps, float(bool(op.axes))
        ints = [*sizes, *sizes, *[0] * (6 * AXES), int(kind), 0, 0, 0, *[-1] * 5, self.layout.own[kind, index]]
        operation = self._add(ints, constants, [], [])
        flags = _Flag(0) if kind is Own.INSIDE else _Flag.OWN_ONLY
        self._append(_Kind.STORE, operation, self._slot[plane], self._slot[plane], flags)

    def release(self, plane: Plane) -> None:
        """Note that a plane was read; after the last time its slot is free."""
        self._uses[plane] -= 1
        if self._uses[plane] == 0:
            self._free.append(self._slot.pop(plane))

    def _take_slot(self, plane: Plane) -> int:
        if not self._free:
            self._free.append(self._slots)
            self._slots += 1
        self._slot[plane] = self._free.pop()
        return self._slot[plane]

    def _take_wide(self, index: int) -> int:
        self._wide_positions = max(self._wide_positions, int(np.prod(self.nodes[index].positions, dtype=np.int64)))
        if not self._free_wide:
            self._free_wide.append(self._wide)
            self._wide += 1
        return self._free_wide.pop()

    def emit(
        self,
        kind: _Kind,
        operation: int,
        plane: Plane,
        offset: Offset,
        read: Plane | None = None,
        source: Offset | None = None,
        factor: float = 1.0,
        place: int | None = None,
        start: int | None = None,
    ) -> None:
        """Add an instruction. A convolution whose window sees only padding reads nothing: its input plane is empty."""
        flags = self._theta(read, plane)
        if plane.covariance:
            flags |= _Flag.COVARIANCE_OUT
        nonlinear = isinstance(self._node(plane).op, (Elementwise, Normalize))
        if plane.covariance and not nonlinear if read is None else read.covariance:
            flags |= _Flag.COVARIANCE_IN
        if self._own(plane) and plane.covariance:
            flags |= _Flag.OWN_ONLY
        out = self._slot[plane] if place is None else place
        into = start if start is not None else out if read is None else self._slot[read]
        self._append(kind, operation, out, into, flags, offset if source is None else source, offset, factor)

    def _append(
        self, kind: _Kind, operation: int, out: int, into: int, flags: int, source: Offset = (), offset: Offset = (),
        factor: float = 1.0,
    ) -> None:  # fmt: skip
        self.instructions.append(
            [int(kind), operation, out, into, int(flags), *self._three(source, 0), *self._three(offset, 0)]
        )
        self.instruction_factors.append(factor)

    def _theta(self, read: Plane | None, plane: Plane) -> int:
        flags = 0
        if self.ntk and read is not None and self._node(read).trained:
            flags |= _Flag.THETA_IN
        if self.ntk and self._node(plane).trained:
            flags |= _Flag.THETA_OUT
        return int(flags)

    def _node(self, plane: Plane) -> Node:
        """Give the node of a plane, also where a name stands in its place (see :meth:`_own_pool`)."""
        count = len(self.nodes)
        index = plane.node if plane.node >= 0 else -1 - plane.node if plane.node >= -count else -1 - count - plane.node
        return self.nodes[index]

    # -- the numbers of each operation ---------------------------------------------------------------------------------

    @staticmethod
    def _three(values: tuple[int, ...], filler: int) -> list[int]:
        # The last axis is the contiguous one in the core, so fewer axes stand at the end.
        return [*[filler] * (AXES - len(values)), *values]

    def _operation(self, index: int, node: Node) -> int:
        own = [-1] * 6
        fused = index in self.layout.fused
        activation = node
        if fused:  # the layer before, then the activation
            node = self.nodes[node.inputs[0]]
        before = self.nodes[node.inputs[0]].positions if node.inputs else node.positions
        sizes = self._three(before, 1)
        ints = {"in": sizes, "out": self._three(node.positions, 1), "kernel": [1] * 3, "stride": [1] * 3,
                "dilation": [1] * 3, "padding": [0] * 3, "circular": [0] * 3, "out_stride": [0] * 3}  # fmt: skip
        which = channels = wide = 0
        constants, factors, counts = [0.0] * 8, list[float](), list[float]()
        rank = len(before)
        place = AXES - rank  # of the input's first axis
        starts = self.layout.own
        own[2] = starts.get((Own.HALF, index), -1)
        if node.inputs:
            own[1] = starts.get((Own.HALF, node.inputs[0]), -1)
        match node.op:
            case Input(channels=channels) as op:
                which = len(self.inputs)
                self.inputs.append(op)
                self.data_sizes.append(channels * int(np.prod(node.positions, dtype=np.int64)))
            case Dense(gains=gains):
                constants[:5] = layer_constants(gains, 1)
            case Conv(gains=gains) as op:
                constants[:5] = layer_constants(gains, int(np.prod(op.kernel, dtype=np.int64)))
                for i, axis in enumerate(place + axis for axis in op.axes):
                    ints["kernel"][axis], ints["stride"][axis] = op.kernel[i], op.stride[i]
                    ints["dilation"][axis], ints["padding"][axis] = op.dilation[i], op.padding[i][0]
                    ints["circular"][axis] = int(op.circular)
            case Reindex() as op:
                constants[0] = 1.0
                start, step = affine_index(op) or (0, 1)
                ints["stride"][place + op.axis], ints["padding"][place + op.axis] = step, -start
            case Elementwise(phi=phi) if phi.name != "rectified":
                own[0] = starts[Own.DEVIATION, index]
                which = SMOOTH[phi.name]
                if phi.name == "polynomial":
                    channels, factors = len(phi.parameters), _hermite_terms(phi.parameters)
            case Normalize() as op:
                own[0] = starts[Own.SCALE, index]
                settled = not any(
                    isinstance(self.nodes[reader].op, Elementwise) for reader in self.layout.readers[index]
                )
                constants[1], constants[2] = float(op.bias_trained), float(op.weight_trained and settled)
            case AvgPool() as op:
                axis = place + op.axis
                ints["kernel"] = [op.kernel if other == axis else 0 for other in range(AXES)]
                ints["stride"][axis], ints["padding"][axis] = op.stride, op.padding
                factors, counts = pool_weights(op, sizes[axis])
                own[3], own[4] = (starts.get((kind, index), -1) for kind in (Own.INSIDE, Own.MEAN))
                wide = int(op.kernel > _FEW_TERMS)
            case Contract() as op:
                step, wide = 1, 1
                for axis in reversed(range(rank)):
                    if axis not in op.axes:
                        ints["out_stride"][place + axis] = step
                        step *= sizes[place + axis]
                constants[0] = 1.0 / int(np.prod([sizes[place + axis] for axis in op.axes], dtype=np.int64))
        if isinstance(activation.op, Elementwise) and activation.op.phi.name == "rectified":
            own[0], wide = starts[Own.DEVIATION, index], int(not self.layout.scalable)
            constants[5:7] = activation.op.phi.parameters
            norm = self.nodes[activation.inputs[0]].op
            constants[7] = float(isinstance(norm, Normalize) and norm.weight_trained)
        if self.batch > 1:
            ints["in"] = ints["out"] = [1, 1, self.batch]
        out, kernel = ints["out"], ints["kernel"]
        self._longest_row = max(
            self._longest_row, (out[2] - 1) * ints["stride"][2] + (kernel[2] - 1) * ints["dilation"][2] + 1
        )
        numbers = [value for row in ints.values() for value in row]
        return self._add([*numbers, which, channels, int(fused), wide, *own], constants, factors, counts)

    def _constant(self, index: int, value: float) -> int:
        """Give the operation that fills a plane of a node with one value."""
        sizes = self._three(self.nodes[index].positions, 1) if self.batch == 1 else [1, 1, self.batch]
        return self._add([*sizes, *sizes, *[0] * (6 * AXES + 4), *[-1] * 6], [value, *[0.0] * 7], [], [])

    def _add(self, ints: list[int], constants: list[float], factors: list[float], counts: list[float]) -> int:
        self.operations.append(ints)
        self.constants.append(constants)
        self.factors.append(factors)
        self.counts.append(counts)
        return len(self.operations) - 1

    def plan(self) -> TapePlan:
        """Hand the tape to the core."""
        largest = max(
            int(np.prod(ints[first : first + AXES], dtype=np.int64)) for ints in self.operations for first in (0, AXES)
        )
        own_size = self.layout.own_size
        sizes = [
            self.batch,
            max(self._slots, 1),
            largest,
            self._wide,
            self._wide_positions,
            self._longest_row,
            own_size,
        ]
        tape = _core.make_tape(
            np.array(self.operations, dtype=np.int32),
            np.array(self.constants, dtype=np.float64),
            self.factors,
            self.counts,
            np.array(self.instructions, dtype=np.int32).reshape(-1, 5 + 2 * AXES),
            np.array(self.instruction_factors, dtype=np.float64),
            sizes,
            self.data_sizes,
        )
        return TapePlan(tape, tuple(self.inputs), sum(self.data_sizes), own_size, self.batch, self.planes)


def _hermite_terms(coefficients: tuple[float, ...]) -> list[float]:
    """Give c[m] C(m, j) (m - j - 1)!! at [j, m], zero where m - j is odd or negative."""
    size = len(coefficients)
    return [
        coefficients[m] * comb(m, j) * odd_factorial(m - j) if m >= j and (m - j) % 2 == 0 else 0.0
        for j in range(size)
        for m in range(size)
    ]
