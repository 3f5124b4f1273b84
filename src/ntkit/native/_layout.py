"""What the native engine makes of a program before it plans: which operations it has, and what it remembers of each input.

Planes hold H = (q + q') / 2 - K where a nonlinear operation follows, because that does not cancel for nearby inputs, and K
in the linear layers at the end. Both are linear in K, so sums and convolutions treat them alike, but for padding: there one of
the two values is zero, and H is half the variance of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from ntkit.program import (
    AvgPool,
    Concat,
    Constant,
    Contract,
    Conv,
    Dense,
    Elementwise,
    Gains,
    Input,
    Node,
    Normalize,
    Program,
    Reindex,
    Sum,
)

__all__ = [
    "AXES",
    "SMOOTH",
    "Layout",
    "Own",
    "affine_index",
    "layer_constants",
    "pool_weights",
    "single_precision",
    "unsupported",
]

AXES = 3
SMOOTH = {"erf": 0, "gelu": 1, "sin": 2, "cos": 3, "exp": 4, "polynomial": 5}
"""Activations that are smooth at rho = 1, and their numbers in the core."""

_MOST_NODES = 400  # planning recurses through them


class Own(IntEnum):
    """What is remembered of each input on its own, numbered as in the core."""

    DEVIATION = 0
    HALF = 1
    SCALE = 2
    INSIDE = 3
    MEAN = 4


def unsupported(program: Program) -> str | None:
    """Say which operation the native engine has no instruction for; None where it has all."""
    if len(program.nodes) > _MOST_NODES:
        return f"more than {_MOST_NODES} operations"
    readers = _readers(program)
    for index, node in enumerate(program.nodes):
        if len(node.positions) > AXES:
            return f"{node.path}: more than {AXES} position axes"
        missing = _missing(node, [program.nodes[reader] for reader in readers[index]])
        if missing is not None:
            return f"{node.path}: {missing}"
    return "means of channels" if program.means_needed else None


def _missing(node: Node, readers: list[Node]) -> str | None:
    match node.op:
        case Elementwise(phi=phi) if phi.name != "rectified" and phi.name not in SMOOTH:
            return str(phi)
        case Dense(gains=gains) | Conv(gains=gains) if float(gains.w_std) == 0 and float(gains.weight_rate) != 0:
            return "a trained weight without variance"
        case Reindex() as op if affine_index(op) is None:
            return "positions in another order"
        case Normalize() as op:
            if node.inputs[0] != node.inputs[1]:
                return "normalisation of a part of the channels"
            if op.axes and len(op.axes) != len(node.positions):
                return "normalisation over some of the positions"
            activations = [isinstance(reader.op, Elementwise) for reader in readers]
            if (
                op.weight_trained
                and any(activations)
                and not (
                    all(activations) and all(reader.op.phi.name == "rectified" for reader in readers)  # type: ignore[attr-defined]
                )
            ):
                return "a trained gain before this activation"
            if op.weight_trained and any(isinstance(reader.op, (Sum, Normalize)) for reader in readers):
                return "a trained gain before a sum or another normalisation"
            return None
        case (
            Input()
            | Dense()
            | Conv()
            | Elementwise()
            | AvgPool()
            | Contract()
            | Sum()
            | Concat()
            | Constant()
            | Reindex()
        ):
            return None
    return node.op.label()


def single_precision(program: Program) -> bool:
    """Tell whether float32 inputs may be computed with in single precision.

    So they are where every activation is of the ReLU family and nothing is normalised: there H carries small differences
    through the whole network, and what a multiple of an input gives is the multiple, but for the biases, which scale along.
    """
    return not any(
        isinstance(node.op, Normalize) or (isinstance(node.op, Elementwise) and node.op.phi.name != "rectified")
        for node in program.nodes
    )


def affine_index(op: Reindex) -> tuple[int, int] | None:
    """Give start and step where positions are read in order, x'[q] = x[start + step q], zero outside; None otherwise."""
    inside = [(q, p) for q, p in enumerate(op.index) if p >= 0]
    if not inside:
        return None
    step = inside[1][1] - inside[0][1] if len(inside) > 1 else 1
    if step < 1 or any(q2 - q1 != 1 or p2 - p1 != step for (q1, p1), (q2, p2) in pairwise(inside)):
        return None
    start = inside[0][1] - step * inside[0][0]
    # What is not read must be outside, or zeros would be read from inside.
    if inside[0][0] > 0 and inside[0][1] - step >= 0:
        return None
    return start, step


def _readers(program: Program) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in program.nodes]
    for index, node in enumerate(program.nodes):
        for read in dict.fromkeys(node.inputs):
            readers[read].append(index)
    return readers


@dataclass(frozen=True)
class Layout:
    """What tapes of one program have in common.

    Attributes
    ----------
    program
        The network.
    """

    program: Program

    @cached_property
    def readers(self) -> list[list[int]]:
        """Which nodes read each node."""
        return _readers(self.program)

    @cached_property
    def linear_after(self) -> tuple[bool, ...]:
        """Whether only linear operations follow a node, so that its planes hold K."""
        nodes = self.program.nodes
        linear = [True] * len(nodes)
        for index in reversed(range(len(nodes))):
            linear[index] = all(
                linear[reader] and not isinstance(nodes[reader].op, (Elementwise, Normalize))
                for reader in self.readers[index]
            )
        return tuple(linear)

    @cached_property
    def cyclic(self) -> tuple[tuple[bool, ...], ...]:
        """Along which axes a node is read by windows that wrap around: there offsets are numbers modulo the length."""
        nodes = self.program.nodes
        found = [[False] * len(node.positions) for node in nodes]
        for node in nodes:
            if isinstance(node.op, Conv) and node.op.circular:
                for axis in node.op.axes:
                    found[node.inputs[0]][axis] = True
        return tuple(map(tuple, found))

    @cached_property
    def fused(self) -> frozenset[int]:
        """The activations that are computed together with the linear layer before them."""
        nodes = self.program.nodes
        return frozenset(
            index
            for index, node in enumerate(nodes)
            if isinstance(node.op, Elementwise)
            and node.op.phi.name == "rectified"
            and isinstance(layer := nodes[node.inputs[0]].op, (Dense, Conv))
            and float(layer.gains.w_std) != 0
            and len(self.readers[node.inputs[0]]) == 1
        )

    @cached_property
    def negative(self) -> tuple[bool, ...]:
        """Whether a node's covariance between two inputs may be negative."""
        found: list[bool] = []
        for node in self.program.nodes:
            before = any(found[read] for read in node.inputs)
            match node.op:
                case Input():
                    found.append(True)
                case Elementwise(phi=phi) if phi.name == "rectified":
                    low, high = phi.parameters
                    found.append(before and low * high > 0)  # otherwise its values have one sign
                case _:  # a power series in the correlation has no negative terms
                    found.append(before)
        return tuple(found)

    def factor(self, index: int) -> float:
        """Give what the layer fused with an activation multiplies the sum over its window with; 1 for other nodes."""
        if index not in self.fused:
            return 1.0
        op = self.program.nodes[self.program.nodes[index].inputs[0]].op
        assert isinstance(op, (Dense, Conv))
        return layer_constants(op.gains, prod(op.kernel) if isinstance(op, Conv) else 1)[0]

    @cached_property
    def own(self) -> dict[tuple[Own, int], int]:
        """What is remembered of each input on its own, by node, and where it begins."""
        nodes = self.program.nodes
        wanted: dict[tuple[Own, int], int] = {}

        def want(kind: Own, index: int) -> None:
            twice = kind is Own.SCALE
            wanted.setdefault((kind, index), (1 + twice) * int(np.prod(nodes[index].positions, dtype=np.int64)))

        for index, node in enumerate(nodes):
            linear = self.linear_after[index]
            match node.op:
                case Input() if not node.positions and not linear:
                    want(Own.HALF, index)
                case Conv() as op if not linear and not op.circular and any(map(any, op.padding)):
                    want(Own.HALF, node.inputs[0])
                case Reindex() if not linear:
                    want(Own.HALF, node.inputs[0])
                case Elementwise():
                    want(Own.DEVIATION, index)
                case Normalize():
                    want(Own.SCALE, index)
                case AvgPool() as op if not linear:
                    want(Own.INSIDE, index)
                    if len(set(pool_weights(op, nodes[node.inputs[0]].positions[op.axis])[1])) > 1:
                        want(Own.MEAN, index)
            smooth = isinstance(node.op, Elementwise) and node.op.phi.name != "rectified"
            layer = isinstance(node.op, (Dense, Conv)) and node.trained
            if not linear and (smooth or (layer and not self.fused.intersection(self.readers[index]))):
                want(Own.HALF, index)
            if not linear and any(
                self.linear_after[reader] and not isinstance(nodes[reader].op, (Elementwise, Normalize))
                for reader in self.readers[index]
            ):
                want(Own.HALF, index)
        starts, total = {}, 1  # the first number is what the value one stands for, see `scalable`
        for key, size in wanted.items():
            starts[key] = total
            total += size
        return starts

    @cached_property
    def own_size(self) -> int:
        """How many numbers are remembered of each input."""
        if not self.own:
            return 1
        (kind, index), start = list(self.own.items())[-1]
        twice = kind is Own.SCALE
        return start + (1 + twice) * int(np.prod(self.program.nodes[index].positions, dtype=np.int64))

    @property
    def scalable(self) -> bool:
        """Whether inputs may be scaled to norm one."""
        return single_precision(self.program)

    @property
    def bias(self) -> float:
        """The largest variance of a bias, relative to that of the weights beside it."""
        gains = [node.op.gains for node in self.program.nodes if isinstance(node.op, (Dense, Conv))]
        return max((float(g.b_std / g.w_std) ** 2 for g in gains if float(g.w_std)), default=0.0)

    @property
    def windows(self) -> bool:
        """Whether something of the inputs on their own must match the arithmetic between two inputs to the bit."""
        return any(kind is Own.INSIDE for kind, _ in self.own)

    @property
    def batch(self) -> int:
        """How many blocks of pairs run at once: more than one where no value has positions."""
        return 1 if any(node.positions for node in self.program.nodes) else 32


def pool_weights(op: AvgPool, size: int) -> tuple[list[float], list[float]]:
    """Give, for each window, the weight of its positions and the sum of these weights."""
    matrix = op.matrix(size)
    return matrix.amax(1).tolist(), [round(value, 15) for value in matrix.sum(1).tolist()]


def layer_constants(gains: Gains, window: int) -> list[float]:
    """Give w / window, b, r / w, t of K' = w M(K) + b, Theta' = r M(K) + t + w M(Theta)."""
    w, b, r, t = (float(value) for value in (gains.w_std**2, gains.b_std**2, gains.weight_rate, gains.bias_rate))
    return [w / window, b, r / w if r else 0.0, t]
