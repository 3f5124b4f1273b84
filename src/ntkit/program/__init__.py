"""Programs: a network as frozen operations, what each needs kept of a covariance, and its finite form."""

from ._activation import Activation, Elementwise
from ._affine import Conv, Dense, Gains, pad
from ._combine import Concat, Constant, Product, Sum
from ._crop import cropped
from ._input import Input
from ._maps import ConstantMap, DataMap
from ._normalize import Normalize
from ._op import Keep, Keeps, Op, Values, Weights
from ._positions import AdaptiveAvgPool, Arrange, AvgPool, Contract, PositionMap, Reindex, Split
from ._prior import GivenPrior, Prior, StationaryPrior
from ._program import Node, Program, entries

__all__ = [
    "Activation",
    "AdaptiveAvgPool",
    "Arrange",
    "AvgPool",
    "Concat",
    "Constant",
    "ConstantMap",
    "Contract",
    "Conv",
    "DataMap",
    "Dense",
    "Elementwise",
    "Gains",
    "GivenPrior",
    "Input",
    "Keep",
    "Keeps",
    "Node",
    "Normalize",
    "Op",
    "PositionMap",
    "Prior",
    "Product",
    "Program",
    "Reindex",
    "Split",
    "StationaryPrior",
    "Sum",
    "Values",
    "Weights",
    "cropped",
    "entries",
    "pad",
]
