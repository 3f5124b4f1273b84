"""Which nodes carry H = (q + q') / 2 - K, and whether it may be that of a multiple of x."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ntkit._src.program import (
    Arrange,
    Concat,
    Constant,
    Contract,
    Conv,
    Dense,
    Input,
    Normalize,
    Pointwise,
    PositionMap,
    Program,
    Split,
    Sum,
)

from ._covariance import Covariance

__all__ = ["at_one", "carries_h", "scales_with_data"]

_KEEP_H = (Arrange, Concat, Constant, Contract, Conv, Dense, Input, Normalize, PositionMap, Split)


def carries_h(program: Program) -> list[bool]:
    """Return for each node whether to compute H: its inputs allow it, and an activation depends on it."""
    gives: list[bool] = []
    for node in program.nodes:
        sources = node.inputs[:1] if isinstance(node.op, Normalize) else node.inputs
        there = all(gives[source] for source in sources)
        match node.op:
            case Pointwise(phi=phi):
                there = there and phi.homogeneous
            case Sum(cross=cross):
                there = there and cross is None
            case op:
                there = there and isinstance(op, _KEEP_H)
        gives.append(there)
    read = [False] * len(gives)
    for index in reversed(range(len(gives))):
        node = program.nodes[index]
        if isinstance(node.op, Pointwise) or (read[index] and gives[index]):
            for source in node.inputs:
                read[source] = True
    return [there and wanted for there, wanted in zip(gives, read, strict=True)]


def scales_with_data(program: Program) -> list[bool]:
    """Return for each node whether r times the data give r times its values, so that H may be of r x and x'.

    So it is without biases up to the first normalisation, if activations are ReLU-like.
    """
    inputs = {(node.op.prefix, node.op.channel) for node in program.nodes if isinstance(node.op, Input)}
    scales: list[bool] = []
    for node in program.nodes:
        own = bool(node.inputs) and all(scales[source] for source in node.inputs)
        match node.op:
            case Input():
                own = len(inputs) == 1
            case Dense(gains=gains) | Conv(gains=gains):
                own = own and not isinstance(gains.b_std, Tensor) and gains.b_std == 0
            case Pointwise(phi=phi):
                own = own and phi.homogeneous
            case Normalize():
                own = False
        scales.append(own)
    return scales


def at_one(x: Covariance, variances: tuple[Tensor, Tensor] | None) -> Covariance:
    """Return the covariance with H of x and x', H / r + (1 - r) (q - q' / r) / 2: nothing cancels if they are nearly parallel."""
    r = x.multiple
    if x.h is None or r is None:
        return replace(x, ratio=None)
    if variances is None:
        return x.without_h()
    q1, q2 = variances
    return replace(x, h=torch.where(r == 1, x.h, x.h / r + (1 - r) * (q1 - q2 / r) / 2), ratio=None)
