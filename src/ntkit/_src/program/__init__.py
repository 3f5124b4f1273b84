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
from ._affine import Conv, Dense, Gains, Normalize, pad
from ._attention import Attention, LogitSamples, MaskedAttention
from ._combine import Concat, Constant, Join, Product, Sum
from ._fixed_norm import FixedNorm
from ._input import GivenPrior, Input, Lookup, Prior, StationaryPrior, Table, TableEntries
from ._pair import Owners, Pair, Unpaired, pair_programs
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
from ._program import Keep, Keeps, Node, Op, Program, Source, Structure, Values, Weights, entries
from ._shared import NoSharedRule, Shared
