"""From planes to a tape: each is computed once, kept while it is needed, and its memory used again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from math import prod

import numpy as np

from ntkit.program import AvgPool, Concat, Constant, Contract, Elementwise, Input, Node, Normalize, Sum

from . import _core
from ._layout import AXES, Layout, Own
from ._operations import FEW_TERMS, Operation, constant_operation, node_operation, store_operation, three
from ._planes import Offset, Part, Plane, Planes

__all__ = ["PLANE_BYTES", "Planner", "TapePlan"]

PLANE_BYTES = 2 * 64  # of K, or H, and Theta at one position: kLanes numbers each


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
    CHAINED = 32


@dataclass(frozen=True)
class TapePlan:
    """A tape and what it must be given.

    Attributes
    ----------
    tape
        The instructions, in the core.
    inputs
        The operations whose data it reads, in order; each input's numbers are (channels, positions).
    data_sizes, own_size
        How many numbers it reads of each input: of each data, and what is remembered of it on its own.
    batch
        How many blocks of pairs it runs at once: more than one where no value has positions.
    planes
        How many planes it computes, all nodes together.
    kept_bytes
        How much room a thread needs for the planes that are there at the same time.
    """

    tape: _core.Tape
    inputs: tuple[Input, ...]
    data_sizes: tuple[int, ...]
    own_size: int
    batch: int
    planes: int
    kept_bytes: int

    @property
    def data_size(self) -> int:
        """How many numbers it reads of the data of each input."""
        return sum(self.data_sizes)

    @property
    def row_numbers(self) -> int:
        """How many numbers the tape reads of each input."""
        return self.data_size + self.own_size


class Planner:
    """Emits the instructions of planes, and of those they read, one by one."""

    def __init__(self, layout: Layout, ntk: bool, alone: bool, again: frozenset[int] = frozenset()) -> None:
        self.layout, self.ntk = layout, ntk
        self.planes = Planes(layout, ntk, alone, again)
        self.nodes = layout.program.nodes
        self.instructions: list[list[int]] = []
        self.instruction_factors: list[float] = []
        self.inputs: list[Input] = []
        self.operations: list[Operation] = []
        self._operation_of = [self._add(node_operation(layout, index, self.inputs)) for index in range(len(self.nodes))]
        self._read_once: set[int] = set()  # instructions whose output is read by one other
        self._computed = 0
        self._wide_positions = 1
        self._slot: dict[Plane, int] = {}
        self._slot_positions: list[int] = []
        self._free: dict[int, list[int]] = {}  # slots, by their positions
        self._free_wide: list[int] = []
        self._wide = 0

    def count(self, roots: list[Plane]) -> None:
        """Count how often each plane is read, so that its slot is free after the last time."""
        self._uses = self.planes.uses(roots)

    def compute(self, plane: Plane) -> None:
        """Emit the instructions of a plane, after those of the planes it reads, unless it is there already."""
        if plane in self._slot:
            return
        parts = self.planes.parts(plane)
        node = self.nodes[plane.node]
        self._computed += 1
        if self.planes.converts(plane):
            self._one_by_one(_Kind.CONVERT, plane, parts)
            return
        if self.planes.vanishes(plane):
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
                operation = self._add(constant_operation(self.layout, plane.node, node.op.value**2))
                for part in parts:
                    self.emit(_Kind.CLEAR, operation, plane, part.offset)
            case Elementwise(phi=phi):
                kind = _Kind.RECTIFIED if phi.name == "rectified" else _Kind.SMOOTH
                if plane.node in self.layout.fused and not self.planes.own(plane):
                    kind = _Kind.LAYER
                self._one_by_one(kind, plane, parts)
            case Normalize():
                self._one_by_one(_Kind.NORMALIZE, plane, parts)
            case Input():
                self._one_by_one(_Kind.INPUT, plane, parts)
            case _:
                self._one_by_one(_Kind.LAYER, plane, parts)

    def _one_by_one(self, kind: _Kind, plane: Plane, parts: list[Part]) -> None:
        for part in parts:
            for read in part.planes:
                self.compute(read)
        self._take_slot(plane)
        operation = self._operation_of[plane.node]
        if kind is _Kind.CLEAR:
            operation = self._add(constant_operation(self.layout, plane.node, 0.0))
        for part in parts:
            first, source = part.reads[0][:2] if part.reads else (None, part.offset)
            self.emit(kind, operation, plane, part.offset, first, source, self._mask(plane))
        if len(parts) == 1 and self._uses[plane] == 1 and kind in (_Kind.INPUT, _Kind.LAYER):
            self._read_once.add(len(self.instructions) - 1)
        for part in parts:
            for read in part.planes:
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
        self, kind: _Kind, plane: Plane, parts: list[Part], factors: list[float], wide: bool, index: int | None = None
    ) -> None:
        index = plane.node if index is None else index
        operation = self._operation_of[index]
        place = self._take_wide(index) if wide else self._take_slot(plane)
        for number, part in enumerate(parts):
            if number == 0 or not wide:  # an accumulator is cleared as a whole, for all parts
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

    def _pool(self, plane: Plane, parts: list[Part]) -> None:
        op = self.nodes[plane.node].op
        assert isinstance(op, AvgPool)
        operation = self._operation_of[plane.node]
        if self.planes.own(plane) and not self.layout.linear_after[plane.node]:
            self._own_pool(plane, parts[0], operation)
            return
        self._accumulate(_Kind.POOL, plane, parts, [1.0], wide=op.kernel > FEW_TERMS)
        if not plane.covariance:
            for part in parts:
                self.emit(_Kind.POOL_END, operation, plane, part.offset)

    def _own_pool(self, plane: Plane, part: Part, operation: int) -> None:
        """Emit the variance of a mean, N B - A, from the mean B of the variances and what varies inside the window, A."""
        index = plane.node
        op = self.nodes[index].op
        assert isinstance(op, AvgPool)
        apart = [read for read in part.reads if any(read[1])]
        same = next(read for read, source, _ in part.reads if not any(source))
        assert same is not None
        inside = Plane(-1 - len(self.nodes) - index, plane.offset, False)  # a name for the plane that holds A
        self._accumulate(_Kind.POOL, inside, [Part(part.offset, apart)], [1.0], op.kernel > FEW_TERMS, index)
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
        self._leave_slot(mean)
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
        operation = self._add(store_operation(self.layout, kind, index))
        flags = _Flag(0) if kind is Own.INSIDE else _Flag.OWN_ONLY
        self._append(_Kind.STORE, operation, self._slot[plane], self._slot[plane], flags)

    def release(self, plane: Plane) -> None:
        """Note that a plane was read; after the last time its slot is free."""
        self._uses[plane] -= 1
        if self._uses[plane] == 0:
            self._leave_slot(plane)

    def _take_slot(self, plane: Plane) -> int:
        positions = self.layout.batch * prod(self._node(plane).positions)
        free = self._free.setdefault(positions, [])
        if not free:
            free.append(len(self._slot_positions))
            self._slot_positions.append(positions)
        self._slot[plane] = free.pop()
        return self._slot[plane]

    def _leave_slot(self, plane: Plane) -> None:
        slot = self._slot.pop(plane)
        self._free[self._slot_positions[slot]].append(slot)

    def _take_wide(self, index: int) -> int:
        self._wide_positions = max(self._wide_positions, prod(self.nodes[index].positions))
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
        if self.planes.own(plane):
            flags |= _Flag.OWN_ONLY
        out = self._slot[plane] if place is None else place
        into = start if start is not None else out if read is None else self._slot[read]
        self._append(kind, operation, out, into, flags, offset if source is None else source, offset, factor)

    def _append(
        self, kind: _Kind, operation: int, out: int, into: int, flags: int, source: Offset = (), offset: Offset = (),
        factor: float = 1.0,
    ) -> None:  # fmt: skip
        self.instructions.append([int(kind), operation, out, into, int(flags), *three(source, 0), *three(offset, 0)])
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

    def _add(self, operation: Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1

    def plan(self) -> TapePlan:
        """Hand the tape to the core."""
        for index in self._read_once:
            kind, _, _, into, *_ = self.instructions[index + 1]
            if kind in (_Kind.LAYER, _Kind.REDUCE) and into == self.instructions[index][2]:
                self.instructions[index][4] |= _Flag.CHAINED
        data_sizes = [node.op.channels * prod(node.positions) for node in self.nodes if isinstance(node.op, Input)]
        sizes = [
            self.layout.batch,
            self._wide,
            self._wide_positions,
            max(operation.row for operation in self.operations),
            self.layout.own_size,
        ]
        tape = _core.make_tape(
            np.array([operation.integers() for operation in self.operations], dtype=np.int32),
            np.array([operation.constants for operation in self.operations], dtype=np.float64),
            [operation.factors for operation in self.operations],
            [operation.counts for operation in self.operations],
            np.array(self.instructions, dtype=np.int32).reshape(-1, 5 + 2 * AXES),
            np.array(self.instruction_factors, dtype=np.float64),
            sizes,
            self._slot_positions,
            data_sizes,
        )
        return TapePlan(
            tape,
            tuple(self.inputs),
            tuple(data_sizes),
            self.layout.own_size,
            self.layout.batch,
            self._computed,
            sum(self._slot_positions) * PLANE_BYTES,
        )
