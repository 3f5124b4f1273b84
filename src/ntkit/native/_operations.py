"""The numbers of each operation that the core reads: sizes, windows, constants, and where what is remembered begins."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb, prod

from ntkit.program import AvgPool, Contract, Conv, Dense, Elementwise, Input, Normalize, Reindex
from ntkit.rules import odd_factorial

from ._layout import AXES, SMOOTH, Layout, Own, affine_index, layer_constants, pool_weights

__all__ = ["FEW_TERMS", "Operation", "constant_operation", "node_operation", "store_operation", "three"]

FEW_TERMS = 4  # sums of more planes are taken in double precision
_CONSTANTS, _OWNS = 7, 6


def _ones() -> list[int]:
    return [1] * AXES


def _zeros() -> list[int]:
    return [0] * AXES


@dataclass
class Operation:
    """The fields of ``Operation`` in ``core/tape.hpp``, which says what they mean."""

    in_size: list[int]
    out_size: list[int]
    kernel: list[int] = field(default_factory=_ones)
    stride: list[int] = field(default_factory=_ones)
    dilation: list[int] = field(default_factory=_ones)
    padding: list[int] = field(default_factory=_zeros)
    circular: list[int] = field(default_factory=_zeros)
    out_stride: list[int] = field(default_factory=_zeros)
    index: int = 0
    channels: int = 0
    fused: bool = False
    negative: bool = False
    wide: bool = False
    own: list[int] = field(default_factory=lambda: [-1] * _OWNS)
    constants: list[float] = field(default_factory=lambda: [0.0] * _CONSTANTS)
    factors: list[float] = field(default_factory=list)
    counts: list[float] = field(default_factory=list)

    def integers(self) -> list[int]:
        """Give the whole numbers in the order of the core."""
        axes = (self.in_size, self.out_size, self.kernel, self.stride, self.dilation, self.padding, self.circular)
        rows = [value for row in (*axes, self.out_stride) for value in row]
        return [*rows, self.index, self.channels, int(self.fused), int(self.negative), int(self.wide), *self.own]

    @property
    def row(self) -> int:
        """How long a row its window reads along the last axis, padding included."""
        return (self.out_size[2] - 1) * self.stride[2] + (self.kernel[2] - 1) * self.dilation[2] + 1


def three(values: tuple[int, ...], filler: int) -> list[int]:
    """Fill up to three axes. The last is the contiguous one in the core, so fewer stand at the end."""
    return [*[filler] * (AXES - len(values)), *values]


def _sizes(layout: Layout, index: int) -> list[int]:
    return [1, 1, layout.batch] if layout.batch > 1 else three(layout.program.nodes[index].positions, 1)


def constant_operation(layout: Layout, index: int, value: float) -> Operation:
    """Fill a plane of a node with the square of a constant."""
    sizes = _sizes(layout, index)
    return Operation(sizes, sizes, constants=[value, *[0.0] * (_CONSTANTS - 1)])


def store_operation(layout: Layout, kind: Own, index: int) -> Operation:
    """Remember something of each input."""
    sizes, op = _sizes(layout, index), layout.program.nodes[index].op
    made = Operation(sizes, sizes, index=int(kind))
    made.own[5] = layout.own[kind, index]
    # A layer's factor is divided out of the deviations behind it, see core/rectifier.inc.
    made.constants[1] = 1.0 / layout.factor(index) if kind is Own.DEVIATION else 1.0
    if isinstance(op, Normalize):
        made.constants[0], made.constants[3] = op.eps, float(bool(op.axes))
    return made


def node_operation(layout: Layout, index: int, inputs: list[Input]) -> Operation:
    """Give the operation of a node; one that reads data is entered in ``inputs``."""
    nodes, starts = layout.program.nodes, layout.own
    activation = nodes[index]
    # A fused one is the layer before, then the activation.
    node = nodes[activation.inputs[0]] if index in layout.fused else activation
    before = node.inputs[0] if node.inputs else index
    made = Operation(_sizes(layout, before), _sizes(layout, index), fused=index in layout.fused)
    made.own[2] = starts.get((Own.HALF, index), -1)
    if node.inputs:
        made.own[1] = starts.get((Own.HALF, before), -1)
    place = AXES - len(nodes[before].positions)  # of the input's first axis
    match node.op:
        case Input(channels=channels) as op:
            made.index, made.channels = len(inputs), channels
            inputs.append(op)
        case Dense(gains=gains):
            made.constants[:4] = layer_constants(gains, 1)
        case Conv(gains=gains) as op:
            made.constants[:4] = layer_constants(gains, prod(op.kernel))
            for i, axis in enumerate(place + axis for axis in op.axes):
                made.kernel[axis], made.stride[axis] = op.kernel[i], op.stride[i]
                made.dilation[axis], made.padding[axis] = op.dilation[i], op.padding[i][0]
                made.circular[axis] = int(op.circular)
        case Reindex() as op:
            made.constants[0] = 1.0
            start, step = affine_index(op) or (0, 1)
            made.stride[place + op.axis], made.padding[place + op.axis] = step, -start
        case Elementwise(phi=phi) if phi.name != "rectified":
            made.own[0], made.index = starts[Own.DEVIATION, index], SMOOTH[phi.name]
            if phi.name == "polynomial":
                made.channels, made.factors = len(phi.parameters), _hermite_terms(phi.parameters)
        case Normalize() as op:
            made.own[0] = starts[Own.SCALE, index]
            # Before an activation the term of a trained gain is the activation's to add.
            settled = not any(isinstance(nodes[reader].op, Elementwise) for reader in layout.readers[index])
            made.constants[1], made.constants[2] = float(op.bias_trained), float(op.weight_trained and settled)
        case AvgPool() as op:
            axis = place + op.axis
            made.kernel = [op.kernel if other == axis else 0 for other in range(AXES)]
            made.stride[axis], made.padding[axis] = op.stride, op.padding
            made.factors, made.counts = pool_weights(op, made.in_size[axis])
            made.own[3], made.own[4] = (starts.get((kind, index), -1) for kind in (Own.INSIDE, Own.MEAN))
            made.wide = op.kernel > FEW_TERMS
        case Contract() as op:
            step, made.wide = 1, True
            for axis in reversed(range(place, AXES)):
                if axis - place not in op.axes:
                    made.out_stride[axis] = step
                    step *= made.in_size[axis]
            made.constants[0] = 1.0 / prod(made.in_size[place + axis] for axis in op.axes)
    if isinstance(activation.op, Elementwise) and activation.op.phi.name == "rectified":
        made.own[0], made.wide = starts[Own.DEVIATION, index], not layout.scalable
        made.constants[4:6] = activation.op.phi.parameters
        made.negative = layout.negative[activation.inputs[0]]
        norm = nodes[activation.inputs[0]].op
        made.constants[6] = float(isinstance(norm, Normalize) and norm.weight_trained)
    return made


def _hermite_terms(coefficients: tuple[float, ...]) -> list[float]:
    """Give c[m] C(m, j) (m - j - 1)!! at [j, m], zero where m - j is odd or negative."""
    size = len(coefficients)
    return [
        coefficients[m] * comb(m, j) * odd_factorial(m - j) if m >= j and (m - j) % 2 == 0 else 0.0
        for j in range(size)
        for m in range(size)
    ]
