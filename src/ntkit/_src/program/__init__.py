"""Programs: a network as frozen operations, what each needs kept of a covariance, and its finite form."""

from ._activation import (
    GELU,
    Activation,
    AnyFunction,
    Cos,
    Cosh,
    Discontinuous,
    Erf,
    Exp,
    Expm1,
    ExponentialUnit,
    NormalCDF,
    Pointwise,
    Polynomial,
    Rectified,
    Sign,
    Sin,
    Sinh,
    Step,
    any_function,
)
from ._affine import Conv, Dense, Gains, pad
from ._attention import Attention, LogitSamples
from ._combine import Concat, Constant, Product, Sum
from ._crop import cropped
from ._input import Input
from ._maps import ConstantMap, DataMap
from ._normalize import Normalize
from ._op import Keep, Keeps, Op, Values, Weights
from ._positions import AdaptiveAvgPool, Arrange, AvgPool, Contract, PositionMap, Reindex, Split
from ._prior import GivenPrior, Prior, StationaryPrior
from ._program import Node, Program, entries
from ._tokens import Join, Lookup, Merge, Table

__all__ = [
    "GELU",
    "Activation",
    "AdaptiveAvgPool",
    "AnyFunction",
    "Arrange",
    "Attention",
    "AvgPool",
    "Concat",
    "Constant",
    "ConstantMap",
    "Contract",
    "Conv",
    "Cos",
    "Cosh",
    "DataMap",
    "Dense",
    "Discontinuous",
    "Erf",
    "Exp",
    "Expm1",
    "ExponentialUnit",
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
    "NormalCDF",
    "Normalize",
    "Op",
    "Pointwise",
    "Polynomial",
    "PositionMap",
    "Prior",
    "Product",
    "Program",
    "Rectified",
    "Reindex",
    "Sign",
    "Sin",
    "Sinh",
    "Split",
    "StationaryPrior",
    "Step",
    "Sum",
    "Table",
    "Values",
    "Weights",
    "any_function",
    "cropped",
    "entries",
    "pad",
]
