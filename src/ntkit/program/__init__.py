"""Programs: a network as frozen operations on covariances, and what each operation needs kept."""

from ._activation import Activation
from ._ops import (
    Arrange,
    AvgPool,
    Concat,
    Constant,
    Contract,
    Conv,
    Dense,
    Elementwise,
    Gains,
    Input,
    Keep,
    Keeps,
    Normalize,
    Op,
    PositionMap,
    Product,
    Reindex,
    Sum,
)
from ._program import Node, Program, entries

__all__ = [
    "Activation",
    "Arrange",
    "AvgPool",
    "Concat",
    "Constant",
    "Contract",
    "Conv",
    "Dense",
    "Elementwise",
    "Gains",
    "Input",
    "Keep",
    "Keeps",
    "Node",
    "Normalize",
    "Op",
    "PositionMap",
    "Product",
    "Program",
    "Reindex",
    "Sum",
    "entries",
]
