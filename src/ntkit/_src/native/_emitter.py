"""From planes to instructions: each plane is computed once and kept while it is needed; then its memory is reused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from . import _core
from ._demand import Demand
from ._network import PlannedNetwork
from ._plane import ALL, Offset, Part, Plane
from .families import Data, gather, known_family, scatter

POSITION_BYTES = 2 * 64  # bytes of a plane per position: kLanes numbers of K or H, and as many of Theta

_ON_SLOTS = (_core.Kind.GATHER, _core.Kind.LEFT, _core.Kind.RIGHT, _core.Kind.PLACE)
"""Instructions that write whole covariances as they are, not row by row."""

_Operation = Any  # one of the operations of `_core`; the Tape checks which


@dataclass(frozen=True)
class TapePlan:
    """A tape and the sizes of its inputs."""

    tape: _core.Tape  # the instructions; ``print(tape)`` lists them
    inputs: tuple[Data, ...]  # the operations whose data it reads, in order
    data_sizes: tuple[int, ...]  # how many numbers per input it reads of each of ``inputs``
    cache_size: int  # how many numbers of each input are cached
    batch: int  # how many blocks of pairs it runs at once: more than one if no value has positions
    planes: int  # how many planes it computes, all nodes together
    kept_bytes: int  # memory that a thread needs for the planes that exist at the same time

    @property
    def data_size(self) -> int:
        """How many numbers of data it reads per input, in total."""
        return sum(self.data_sizes)

    @property
    def row_numbers(self) -> int:
        """How many numbers per input it reads: data and cache."""
        return self.data_size + self.cache_size


class Emitter:
    """Emits the instructions for planes and for the planes they are computed from.

    With ``keeps``, no slot is used twice in a segment, so that all its planes exist at its end; between segments, only planes and
    sums go on of which every reader is linear. The other arguments are those of :class:`Demand`.
    """

    def __init__(
        self,
        network: PlannedNetwork,
        ntk: bool,
        alone: bool,
        again: Mapping[int, int] | None = None,
        keeps: bool = False,
    ) -> None:
        self.network, self.ntk = network, ntk
        self.segments: list[int] = []  # at which instruction each ends, but the last
        self._kept: list[int] | None = [] if keeps else None  # slots to be freed at the end of the segment
        self._summed: list[int | None] = []  # the nodes of unfinished sums; None for one in a slot
        self.demand = Demand(network, ntk, alone, again)
        self.nodes = network.program.nodes
        self.instructions: list[_core.Instruction] = []
        self.operations: list[_Operation] = []
        self._operation_of: dict[tuple[str, int, float], int] = {}
        self._read_once: list[int] = []  # instructions whose output only one other reads
        self._computed = 0
        self._slot: dict[Plane, int] = {}
        self._slot_positions: list[int] = []
        self._free: dict[int, list[int]] = {}  # slots, by their positions
        self._sums = 0  # accumulators
        self._sum_positions = 1
        self._free_sums: list[int] = []

    def count(self, roots: list[Plane]) -> None:
        """Count how often each plane is read, so that its slot is freed after the last read."""
        self._uses = self.demand.uses(roots)

    def compute(self, plane: Plane) -> None:
        """Emit the instructions of a plane, after those of the planes it reads, unless they have been emitted."""
        if plane in self._slot:
            return
        parts, index = self.demand.parts(plane), plane.node
        self._computed += 1
        family, op = known_family(self.nodes[index].op), self.nodes[index].op
        if plane.step == ALL and not self.demand.converts_whole(plane) and not self.demand.by_rows(index):
            gather(self, plane, parts[0]) if not family.whole else family.emit_whole(self, plane, op)
        elif self.demand.converts(plane) or (plane.step == ALL and self.demand.converts_whole(plane)):
            half_at = self.network.cache_at(_core.Cached.HALF, index)
            convert = self.operation(
                "convert", index, lambda: _core.Convert(size=self.network.size(index), half_at=half_at)
            )
            self.unary(_core.Kind.CONVERT, convert, plane, parts)
        elif self.demand.vanishes(plane):
            self.unary(_core.Kind.FILL, self.fill(index, 0.0), plane, parts)  # Theta is that of the value with itself
        elif not plane.step and self.demand.copied(index):
            scatter(self, plane, parts)
        else:
            family.emit(self, plane, parts, op)

    def unary(self, kind: _core.Kind, operation: int, plane: Plane, parts: list[Part], factor: float = 1.0) -> None:
        """Emit one instruction per part, each of which reads at most one plane."""
        for part in parts:
            for read in part.planes:
                self.compute(read)
        self.take_slot(plane)
        for part in parts:
            source = part.reads[0].plane if part.reads else None
            at = part.reads[0].offset if part.reads else part.offset
            self.emit(kind, operation, plane, part.offset, source, at, factor)
        if (
            len(parts) == 1
            and not plane.step
            and self._uses[plane] == 1
            and kind in (_core.Kind.INPUT, _core.Kind.LAYER)
        ):
            self._read_once.append(len(self.instructions) - 1)
        for part in parts:
            for read in part.planes:
                self.release(read)

    def accumulate(
        self,
        kind: _core.Kind,
        operation: int,
        plane: Plane,
        parts: list[Part],
        wide: bool,
        factors: list[float] | None = None,
    ) -> None:
        """Emit a sum of planes, each times the factor of the input it belongs to; ``wide``: in double precision."""
        index = plane.node
        if wide:
            self._sum_positions = max(self._sum_positions, self.network.batch * prod(self.nodes[index].positions))
            if not self._free_sums:
                self._free_sums.append(self._sums)
                self._sums += 1
            total = self._free_sums.pop()
            self.instructions.append(_core.Instruction(_core.Kind.CLEAR, self.plain(index), out_slot=total))
        else:
            self.take_slot(plane)
        self._summed.append(index if wide else None)
        for part in parts:
            if not wide:
                self.emit(_core.Kind.FILL, self.fill(index, 0.0), plane, part.offset)
            for read, source, which in part.reads:
                if read is None:
                    continue
                self.compute(read)
                factor = 1.0 if factors is None else factors[which]
                self.emit(kind, operation, plane, part.offset, read, source, factor, total if wide else None)
                self.release(read)
                self._end_segment()
        self._summed.pop()
        if wide:
            self.take_slot(plane)
            for part in parts:
                self.emit(_core.Kind.SETTLE, self.plain(index), plane, part.offset, start=total)
            self._free_sums.append(total)

    def finish(self, plane: Plane) -> None:
        """Compute a plane and emit it as the result."""
        self.compute(plane)
        trained = self.ntk and self.nodes[plane.node].trained
        self.instructions.append(
            _core.Instruction(
                _core.Kind.OUTPUT,
                self.plain(plane.node),
                in_slot=self._slot[plane],
                theta_in=trained,
                covariance_in=True,
                covariance_out=True,
                theta_out=trained,
            )
        )
        self.release(plane)

    def store(self, what: _core.Cached, index: int, plane: Plane) -> None:
        """Store cached data of each input, computed from a plane of its variances."""
        op = self.nodes[index].op
        made = known_family(op).store(self.network, index, op, what, self.network.cache[what, index])
        self.instructions.append(
            _core.Instruction(
                _core.Kind.WEIGHTS if what == _core.Cached.WEIGHTS else _core.Kind.STORE,
                self._add(made),
                in_slot=self._slot[plane],
                covariance_in=plane.covariance,
                cache_only=what != _core.Cached.INSIDE,
            )
        )

    def emit(
        self,
        kind: _core.Kind,
        operation: int,
        plane: Plane,
        offset: Offset,
        read: Plane | None = None,
        source: Offset | None = None,
        factor: float = 1.0,
        out: int | None = None,
        start: int | None = None,
    ) -> None:
        """Add the instruction that computes a plane at one of its ordinary offsets."""
        # It reads the plane ``read`` at the ordinary offset ``source``; None if a window sees only padding. ``out`` and
        # ``start`` are slots or accumulators to write and to read instead of those of the planes. ``core/tape.hpp`` has the
        # rest.
        if read is None:
            into = _core.NOTHING if start is None else start
            covariance_in = plane.covariance and not self.network.reads_h[plane.node]
        else:
            into, covariance_in = self._slot[read], read.covariance
        offset = _three(offset)
        self.instructions.append(
            _core.Instruction(
                kind,
                operation,
                out_slot=self._slot[plane] if out is None else out,
                in_slot=into,
                out_offset=offset,
                in_offset=offset if source is None else _three(source),
                factor=factor,
                theta_in=self.ntk and read is not None and self.nodes[read.node].trained,
                theta_out=self.ntk and self.nodes[plane.node].trained,
                covariance_in=covariance_in,
                covariance_out=plane.covariance,
                cache_only=self.demand.holds_variances(plane),
                whole=prod(self.nodes[plane.node].positions) if plane.step == ALL and kind not in _ON_SLOTS else 0,
            )
        )

    def operation(self, role: str, index: int, make: Callable[[], _Operation], number: float = 0.0) -> int:
        """Return the operation with some role for a node, created on first use; ``number`` distinguishes two of one role."""
        key = (role, index, number)
        if key not in self._operation_of:
            self._operation_of[key] = self._add(make())
        return self._operation_of[key]

    def _end_segment(self) -> None:
        """End the segment here if only linear operations read what exists, and no slot is half written."""
        nodes = [plane.node for plane in self._slot] + self._summed
        if self._kept and all(node is not None and self.network.linear_after[node] for node in nodes):
            self.segments.append(len(self.instructions))
            for slot in self._kept:
                self._free[self._slot_positions[slot]].append(slot)
            self._kept.clear()

    def layers(self) -> dict[int, int]:
        """Return the node of each operation that is a layer's own."""
        return {operation: index for (role, index, _), operation in self._operation_of.items() if role == "layer"}

    def plain(self, index: int) -> int:
        """Return the operation that holds only the positions of a node."""
        return self.operation("plain", index, lambda: _core.Plain(size=self.network.size(index)))

    def fill(self, index: int, square: float) -> int:
        """Return the operation that fills a plane of a node with the square of a constant."""
        return self.operation(
            "fill", index, lambda: _core.Fill(size=self.network.size(index), square=square), number=square
        )

    def _add(self, operation: _Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1

    def take_slot(self, plane: Plane, positions: int = 0) -> int:
        """Reserve memory for a plane, or for so many positions."""
        count = prod(self.nodes[plane.node].positions)
        positions = positions or (count**2 if plane.step == ALL else self.network.batch * count)
        free = self._free.setdefault(positions, [])
        if not free:
            free.append(len(self._slot_positions))
            self._slot_positions.append(positions)
        self._slot[plane] = free.pop()
        return self._slot[plane]

    def leave_slot(self, plane: Plane) -> None:
        """Release the memory of a plane."""
        slot = self._slot.pop(plane)
        (self._free[self._slot_positions[slot]] if self._kept is None else self._kept).append(slot)

    def slot(self, plane: Plane) -> int:
        """Return the slot of a plane."""
        return self._slot[plane]

    def rename(self, old: Plane, new: Plane) -> None:
        """Let a plane take over the memory of another."""
        self._slot[new] = self._slot.pop(old)

    def release(self, plane: Plane) -> None:
        """Record that a plane was read; its slot is freed after the last read."""
        self._uses[plane] -= 1
        if self._uses[plane] == 0:
            self.leave_slot(plane)

    def plan(self) -> TapePlan:
        """Pass the tape to the core, which checks it."""
        for index in self._read_once:
            step, following = self.instructions[index], self.instructions[index + 1]
            step.chained = following.in_slot == step.out_slot and following.kind in (
                _core.Kind.LAYER,
                _core.Kind.REDUCE,
            )
        network = self.network
        tape = _core.Tape(
            self.operations,
            self.instructions,
            batch=network.batch,
            slots=self._slot_positions,
            accumulators=self._sums,
            accumulator_positions=self._sum_positions,
            cache_size=network.cache_size,
            data_sizes=network.data_sizes,
        )
        inputs = [op for index in network.inputs if isinstance(op := self.nodes[index].op, Data)]
        return TapePlan(
            tape,
            tuple(inputs),
            network.data_sizes,
            network.cache_size,
            network.batch,
            self._computed,
            sum(self._slot_positions) * POSITION_BYTES,
        )


def _three(offset: Offset) -> Offset:
    return (0,) * (_core.AXES - len(offset)) + offset
