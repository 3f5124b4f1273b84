"""What the native engine knows about each operation: one file per family, and their registry."""

from __future__ import annotations

from typing import Any

from ntkit._src.program import (
    GELU,
    Activation,
    AdaptiveAvgPool,
    AnyFunction,
    Arrange,
    AvgPool,
    Concat,
    Constant,
    ConstantMap,
    Contract,
    Conv,
    Cos,
    DataMap,
    Dense,
    Erf,
    Exp,
    ExponentialUnit,
    Input,
    Join,
    NormalCDF,
    Normalize,
    Op,
    Pointwise,
    Polynomial,
    Product,
    Rectified,
    Reindex,
    Sin,
    Split,
    Sum,
    Table,
)

from .. import _core
from ._combine import ConcatFamily, ConstantFamily, ContractFamily, ProductFamily, SumFamily
from ._exponential_unit import ExponentialUnitFamily
from ._family import Family
from ._input import InputFamily, Rescale, RescaleFamily
from ._linear import LinearFamily
from ._map import MapFamily
from ._normalize import MOST_RATIO, NormalizeFamily
from ._pool import PoolFamily, kept_positions, shared_pools
from ._rectified import RectifiedFamily
from ._reindex import ArrangeFamily, ReindexFamily, SplitFamily
from ._series import SeriesFamily
from ._smooth import SmoothFamily

FAMILIES: dict[type[Op], Family[Any]] = {
    Input: InputFamily(),
    Dense: LinearFamily(),
    Conv: LinearFamily(),
    Normalize: NormalizeFamily(),
    AvgPool: PoolFamily(),
    AdaptiveAvgPool: MapFamily(),
    ConstantMap: MapFamily(),
    Reindex: ReindexFamily(),
    Arrange: ArrangeFamily(),
    Split: SplitFamily(),
    Contract: ContractFamily(),
    Sum: SumFamily(),
    Concat: ConcatFamily(),
    Constant: ConstantFamily(),
    Product: ProductFamily(),
    Rescale: RescaleFamily(),
}
"""The family of each operation except activations."""

ACTIVATIONS: dict[type[Activation], Family[Pointwise]] = {
    Rectified: RectifiedFamily(),
    Erf: SmoothFamily(_core.Function.ERF),
    GELU: SmoothFamily(_core.Function.GELU),
    Sin: SmoothFamily(_core.Function.SINE),
    Cos: SmoothFamily(_core.Function.COSINE),
    Exp: SmoothFamily(_core.Function.EXPONENTIAL),
    Polynomial: SmoothFamily(_core.Function.POLYNOMIAL),
    AnyFunction: SeriesFamily(),
    NormalCDF: SeriesFamily(),
    ExponentialUnit: ExponentialUnitFamily(),
}
"""The family of each class of activations."""

_WHY_NONE: dict[type[Op], str] = {
    DataMap: "instructions have one matrix for all inputs",
    Join: "the planes of a value hold one field, not several side by side",
    Table: "planes are computed from inputs, and it has a covariance of its own",
}
"""Why an operation has no family, where this can be said in few words."""


def family_of(op: Op) -> Family[Any] | None:
    """Return the family of an operation; None if the native engine has none."""
    return ACTIVATIONS.get(type(op.phi)) if isinstance(op, Pointwise) else FAMILIES.get(type(op))


def known_family(op: Op) -> Family[Any]:
    """Return the family of an operation of a program that the native engine supports."""
    family = family_of(op)
    assert family is not None
    return family


def why_none(op: Op) -> str:
    """Name an operation without a family, and say why it has none where this is known."""
    why = _WHY_NONE.get(type(op))
    return op.label() if why is None else f"{op.label()} ({why})"
