"""From a program to a tape: which planes of each covariance are needed, and in which order they are computed.

The plane of offset d holds K[p, p + d] for all positions p. An operation that gives the plane d of its output reads a few
planes of its input: an activation, a sum or a convolution of stride one the same plane; a convolution of stride s the plane
s d; pooling with window k and stride s the planes s d + e, |e| < k; flatten the plane zero. So the planes needed are known
from the output back, and each is computed once, kept while it is needed, and its memory used again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ntkit.program import (
    AvgPool,
    Concat,
    Contract,
    Conv,
    Dense,
    Elementwise,
    Gains,
    Input,
    Node,
    Op,
    Program,
    Sum,
)

from . import _core

__all__ = ["TapePlan", "plan_cross", "plan_self", "unsupported"]

Offset = tuple[int, ...]
Plane = tuple[int, Offset]
"""A node and an offset, one number for each of the node's position axes."""

_AXES = 3
_LANES = 4  # kLanes of the core
_BATCH = 16
_MOST_NODES = 400  # planning recurses through them


class _Kind(IntEnum):
    """The instructions of the core, in its order."""

    INPUT = 0
    AFFINE = 1
    CONV = 2
    RECTIFIED = 3
    CLEAR = 4
    POOL = 5
    REDUCE = 6
    COMBINE = 7
    VARIANCE = 8
    OUTPUT = 9


@dataclass(frozen=True)
class TapePlan:
    """A tape and what it must be given.

    Attributes
    ----------
    tape
        The instructions, in the core.
    inputs
        The operations whose data it reads, in order; each input's numbers are (channels, positions).
    data_size, deviations
        How many numbers it reads of each input: data (none where ``batch`` is more than one, inner products take their place),
        and deviations with their inverses.
    batch
        How many blocks of pairs it runs at once: more than one where no value has positions.
    planes
        How many planes it computes, all nodes together.
    """

    tape: _core.Tape
    inputs: tuple[Input, ...]
    data_size: int
    deviations: int
    batch: int
    planes: int

    @property
    def width(self) -> int:
        """How many columns of a kernel one run of the tape computes."""
        return self.batch * _LANES

    @property
    def row_numbers(self) -> int:
        """How many numbers the tape reads of each input."""
        return self.data_size + self.deviations


def unsupported(program: Program) -> str | None:
    """Say which operation the native engine has no instruction for; None where it has all."""
    if len(program.nodes) > _MOST_NODES:
        return f"more than {_MOST_NODES} operations"
    for node in program.nodes:
        if len(node.positions) > _AXES:
            return f"{node.path}: more than {_AXES} position axes"
        match node.op:
            case Conv(circular=True):
                return f"{node.path}: circular convolution"
            case Elementwise(phi=phi) if phi.name != "rectified":
                return f"{node.path}: {phi}"
            case Input() | Dense() | Conv() | Elementwise() | AvgPool() | Contract() | Sum() | Concat():
                continue
        return f"{node.path}: {node.op.label()}"
    return "means of channels" if program.means_needed else None


def plan_cross(program: Program, ntk: bool) -> TapePlan:
    """Plan the kernels between two inputs whose deviations are known."""
    planner = _Planner(program, ntk)
    output = (program.output, ())
    planner.count([output])
    planner.finish(output)
    return planner.plan()


def plan_self(program: Program, ntk: bool, output: bool) -> TapePlan:
    """Plan the deviations that activations read of each input, and, where ``output``, its kernels with itself."""
    planner = _Planner(program, ntk and output)
    reads = [(node.inputs[0], _zero(program, node.inputs[0])) for node in planner.activations]
    final = (program.output, ())
    planner.count([*reads, final] if output else reads)
    for index, plane in enumerate(reads):
        planner.compute(plane)
        planner.emit(_Kind.VARIANCE, planner.variance_operation(index), plane, plane)
        planner.release(plane)
    if output:
        planner.finish(final)
    return planner.plan()


def _zero(program: Program, node: int) -> Offset:
    return (0,) * len(program.nodes[node].positions)


def _three(values: tuple[int, ...], filler: int) -> list[int]:
    # The last axis is the contiguous one in the core, so fewer axes stand at the end.
    return [*[filler] * (_AXES - len(values)), *values]


@dataclass
class _Planner:
    program: Program
    ntk: bool
    operations: list[list[int]] = field(default_factory=list)
    constants: list[list[float]] = field(default_factory=list)
    factors: list[list[float]] = field(default_factory=list)
    instructions: list[list[int]] = field(default_factory=list)
    instruction_factors: list[float] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    data_sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = self.program.nodes
        # Where no value has positions, several blocks of pairs run at once along the last axis instead.
        self._batch = 1 if any(node.positions for node in nodes) else _BATCH
        self.activations = [node for node in nodes if isinstance(node.op, Elementwise)]
        self._activation_index = {id(node): index for index, node in enumerate(self.activations)}
        self._operation_of = {index: self._operation(node) for index, node in enumerate(nodes)}
        self._uses: Counter[Plane] = Counter()
        self._slot: dict[Plane, int] = {}
        self._free: list[int] = []
        self._slots = 0
        self.planes = 0

    # -- what is needed ------------------------------------------------------------------------------------------------

    def count(self, roots: list[Plane]) -> None:
        """Count how often each plane is read, so that its slot is free after the last time."""
        wanted: dict[int, set[Offset]] = {}
        for plane in roots:
            self._uses[plane] += 1
            wanted.setdefault(plane[0], set()).add(plane[1])
        for index in reversed(range(len(self.program.nodes))):
            for offset in wanted.get(index, ()):
                for read in self.reads((index, offset)):
                    self._uses[read] += 1
                    wanted.setdefault(read[0], set()).add(read[1])

    def reads(self, plane: Plane) -> Iterator[Plane]:
        """Give the planes that one plane is computed from."""
        index, offset = plane
        node = self.program.nodes[index]
        for read in node.inputs:
            for source in self._source_offsets(node.op, offset, self.program.nodes[read].positions):
                if all(abs(d) < size for d, size in zip(source, self.program.nodes[read].positions, strict=True)):
                    yield read, source

    @staticmethod
    def _source_offsets(op: Op, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        match op:
            case Conv():
                scaled = list(offset)
                for axis, stride in zip(op.axes, op.stride, strict=True):
                    scaled[axis] *= stride
                yield tuple(scaled)
            case AvgPool():
                for apart in range(1 - op.kernel, op.kernel):
                    moved = list(offset)
                    moved[op.axis] = op.stride * offset[op.axis] + apart
                    yield tuple(moved)
            case Contract():
                rest = iter(offset)
                yield tuple(0 if axis in op.axes else next(rest) for axis in range(len(positions)))
            case _:
                yield offset

    # -- in which order ------------------------------------------------------------------------------------------------

    def compute(self, plane: Plane) -> None:
        """Emit the instructions of a plane, after those of the planes it reads, unless it is there already."""
        if plane in self._slot:
            return
        index, _ = plane
        node = self.program.nodes[index]
        operation = self._operation_of[index]
        reads = list(self.reads(plane))
        match node.op:
            case AvgPool():
                self._accumulate(_Kind.POOL, operation, plane, reads, [1.0] * len(reads))
            case Contract():
                self._accumulate(_Kind.REDUCE, operation, plane, reads, [1.0] * len(reads))
            case Sum():
                self._accumulate(_Kind.COMBINE, operation, plane, reads, [c * c for c in node.op.coefficients])
            case Concat():
                self._accumulate(_Kind.COMBINE, operation, plane, reads, list(node.op.fractions))
            case _:
                kind = {Input: _Kind.INPUT, Dense: _Kind.AFFINE, Conv: _Kind.CONV, Elementwise: _Kind.RECTIFIED}[
                    type(node.op)
                ]
                for read in reads:
                    self.compute(read)
                self._take_slot(plane)
                self.emit(kind, operation, reads[0] if reads else None, plane)
                for read in reads:
                    self.release(read)
        self.planes += 1

    def _accumulate(self, kind: _Kind, operation: int, plane: Plane, reads: list[Plane], factors: list[float]) -> None:
        self._take_slot(plane)
        self.emit(_Kind.CLEAR, operation, None, plane)
        for read, factor in zip(reads, factors, strict=True):
            self.compute(read)
            self.emit(kind, operation, read, plane, factor)
            self.release(read)

    def finish(self, plane: Plane) -> None:
        """Compute a plane and hand it over as the result."""
        self.compute(plane)
        self.emit(_Kind.OUTPUT, self._operation_of[plane[0]], plane, plane)
        self.release(plane)

    def release(self, plane: Plane) -> None:
        """Note that a plane was read; after the last time its slot is free."""
        self._uses[plane] -= 1
        if self._uses[plane] == 0:
            self._free.append(self._slot.pop(plane))

    def _take_slot(self, plane: Plane) -> None:
        if not self._free:
            self._free.append(self._slots)
            self._slots += 1
        self._slot[plane] = self._free.pop()

    def emit(self, kind: _Kind, operation: int, read: Plane | None, plane: Plane, factor: float = 1.0) -> None:
        """Add an instruction. A convolution whose window sees only padding reads nothing: its input plane is empty."""
        source = plane if read is None else read
        theta = 2 * self._has_theta(plane[0]) + (0 if read is None else self._has_theta(read[0]))
        node = self.program.nodes[plane[0]]
        offset = source[1]
        if read is None and isinstance(node.op, Conv):
            offset = next(self._source_offsets(node.op, plane[1], self.program.nodes[node.inputs[0]].positions))
        self.instructions.append(
            [
                int(kind),
                operation,
                self._slot[plane],
                self._slot[source],
                theta,
                *_three(offset, 0),
                *_three(plane[1], 0),
            ]
        )
        self.instruction_factors.append(factor)

    def _has_theta(self, node: int) -> int:
        return int(self.ntk and self.program.nodes[node].trained)

    # -- the numbers of each operation ---------------------------------------------------------------------------------

    def _operation(self, node: Node) -> int:
        sizes = _three(self.program.nodes[node.inputs[0]].positions if node.inputs else node.positions, 1)
        ints = {"in": sizes, "out": _three(node.positions, 1), "kernel": [1] * 3, "stride": [1] * 3, "dilation": [1] * 3,
                "padding": [0] * 3, "out_stride": [0] * 3}  # fmt: skip
        index = channels = 0
        constants, factors = [0.0] * 4, list[float]()
        rank = len(self.program.nodes[node.inputs[0]].positions) if node.inputs else len(node.positions)
        place = _AXES - rank  # of the input's first axis
        match node.op:
            case Input(channels=channels) as op:
                index = len(self.inputs)
                self.inputs.append(op)
                self.data_sizes.append(
                    channels * int(np.prod(node.positions, dtype=np.int64)) if self._batch == 1 else 0
                )
            case Dense(gains=gains):
                constants = _numbers(gains)
            case Conv(gains=gains) as op:
                constants = _numbers(gains)
                for i, axis in enumerate(place + axis for axis in op.axes):
                    ints["kernel"][axis], ints["stride"][axis] = op.kernel[i], op.stride[i]
                    ints["dilation"][axis], ints["padding"][axis] = op.dilation[i], op.padding[i][0]
            case Elementwise(phi=phi):
                index, constants = self._activation_index[id(node)], [*phi.parameters, 0.0, 0.0]
            case AvgPool() as op:
                axis = place + op.axis
                ints["kernel"] = [op.kernel if other == axis else 0 for other in range(_AXES)]
                ints["stride"][axis], ints["padding"][axis] = op.stride, op.padding
                factors = op.matrix(sizes[axis]).amax(1).tolist()  # one weight for all positions of a window
            case Contract() as op:
                step = 1
                for axis in reversed(range(rank)):
                    if axis not in op.axes:
                        ints["out_stride"][place + axis] = step
                        step *= sizes[place + axis]
                constants[0] = 1.0 / int(np.prod([sizes[place + axis] for axis in op.axes], dtype=np.int64))
        if self._batch > 1:
            ints["in"] = ints["out"] = [1, 1, self._batch]
        return self._add([*(value for row in ints.values() for value in row), index, channels], constants, factors)

    def variance_operation(self, index: int) -> int:
        """Give the operation that remembers the variance an activation reads."""
        sizes = _three(self.activations[index].positions, 1) if self._batch == 1 else [1, 1, self._batch]
        return self._add([*sizes, *sizes, *[0] * (5 * _AXES), index, 0], [0.0] * 4, [])

    def _add(self, ints: list[int], constants: list[float], factors: list[float]) -> int:
        self.operations.append(ints)
        self.constants.append(constants)
        self.factors.append(factors)
        return len(self.operations) - 1

    def plan(self) -> TapePlan:
        """Hand the tape to the core."""
        # A convolution goes axis by axis, the last first, so lengths of its input and output meet in between.
        sizes = [
            ints[: _AXES - done] + ints[2 * _AXES - done : 2 * _AXES]
            for ints in self.operations
            for done in range(_AXES + 1)
        ]
        largest = max(int(np.prod(size, dtype=np.int64)) for size in sizes)
        activations = [int(np.prod(node.positions, dtype=np.int64)) for node in self.activations]
        tape = _core.make_tape(
            np.array(self.operations, dtype=np.int32).reshape(-1, 7 * _AXES + 2),
            np.array(self.constants, dtype=np.float64).reshape(-1, 4),
            self.factors,
            np.array(self.instructions, dtype=np.int32).reshape(-1, 5 + 2 * _AXES),
            np.array(self.instruction_factors, dtype=np.float64),
            max(self._slots, 1),
            largest,
            activations,
            self.data_sizes,
            self._batch,
        )
        return TapePlan(tape, tuple(self.inputs), sum(self.data_sizes), 2 * sum(activations), self._batch, self.planes)


def _numbers(gains: Gains) -> list[float]:
    values = gains.w_std**2, gains.b_std**2, gains.weight_rate, gains.bias_rate
    return [float(value) for value in values]
