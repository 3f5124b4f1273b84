"""Programs: a network as frozen operations, what each needs kept of a covariance, and its finite form."""

from ._activation import Activation, Pointwise
from ._affine import Conv, Dense, Gains, pad
from ._attention import Attention, LogitSamples
from ._combine import Concat, Constant, Product, Sum
from ._input import GivenPrior, Input, Prior, StationaryPrior
from ._normalize import Normalize
from ._op import Keep, Keeps, Op, Values, Weights
from ._positions import (
    AdaptiveAvgPool,
    Arrange,
    AvgPool,
    ConstantMap,
    Contract,
    DataMap,
    Merge,
    PositionMap,
    Reindex,
    Split,
)
from ._program import Node, Program, entries
from ._tokens import Join, Lookup, Table

__all__ = [
    "Activation",
    "AdaptiveAvgPool",
    "Arrange",
    "Attention",
    "AvgPool",
    "Concat",
    "Constant",
    "ConstantMap",
    "Contract",
    "Conv",
    "DataMap",
    "Dense",
    "Gains",
    "GivenPrior",
    "Input",
    "Join",
    "Keep",
    "Keeps",
    "LogitSamples",
    "Lookup",
    "Merge",
    "Node",
    "Normalize",
    "Op",
    "Pointwise",
    "PositionMap",
    "Prior",
    "Product",
    "Program",
    "Reindex",
    "Split",
    "StationaryPrior",
    "Sum",
    "Table",
    "Values",
    "Weights",
    "entries",
    "pad",
]
