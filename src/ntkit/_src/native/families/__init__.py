"""What the native engine knows about each operation: one file per family, and their registry."""

from __future__ import annotations

from typing import Any

from ntkit._src import program as ops

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

FAMILIES: dict[type[ops.Op], Family[Any]] = {
    ops.Input: InputFamily(),
    ops.Dense: LinearFamily(),
    ops.Conv: LinearFamily(),
    ops.Normalize: NormalizeFamily(),
    ops.AvgPool: PoolFamily(),
    ops.AdaptiveAvgPool: MapFamily(),
    ops.ConstantMap: MapFamily(),
    ops.Reindex: ReindexFamily(),
    ops.Arrange: ArrangeFamily(),
    ops.Split: SplitFamily(),
    ops.Contract: ContractFamily(),
    ops.Sum: SumFamily(),
    ops.Concat: ConcatFamily(),
    ops.Constant: ConstantFamily(),
    ops.Product: ProductFamily(),
    Rescale: RescaleFamily(),
}
"""The family of each operation except activations."""

ACTIVATIONS: dict[type[ops.Activation], Family[ops.Pointwise]] = {
    ops.Rectified: RectifiedFamily(),
    ops.Erf: SmoothFamily(_core.Function.ERF),
    ops.GELU: SmoothFamily(_core.Function.GELU),
    ops.Sin: SmoothFamily(_core.Function.SINE),
    ops.Cos: SmoothFamily(_core.Function.COSINE),
    ops.Exp: SmoothFamily(_core.Function.EXPONENTIAL),
    ops.Polynomial: SmoothFamily(_core.Function.POLYNOMIAL),
    ops.AnyFunction: SeriesFamily(),
    ops.NormalCDF: SeriesFamily(),
    ops.ExponentialUnit: ExponentialUnitFamily(),
}
"""The family of each class of activations."""

_WHY_NONE: dict[type[ops.Op], str] = {
    ops.DataMap: "instructions have one matrix for all inputs",
    ops.Shared: "it needs covariances between different values",
    ops.FixedNorm: "its affine parameters have no planes",
    ops.Join: "the planes of a value hold one field, not several side by side",
    ops.Table: "planes are computed from inputs, and it has a covariance of its own",
}
"""Why an operation has no family, where this can be said in few words."""


def family_of(op: ops.Op) -> Family[Any] | None:
    """Return the family of an operation; None if the native engine has none."""
    return ACTIVATIONS.get(type(op.phi)) if isinstance(op, ops.Pointwise) else FAMILIES.get(type(op))


def known_family(op: ops.Op) -> Family[Any]:
    """Return the family of an operation of a program that the native engine supports."""
    family = family_of(op)
    assert family is not None
    return family


def why_none(op: ops.Op) -> str:
    """Name an operation without a family, and say why it has none where this is known."""
    why = _WHY_NONE.get(type(op))
    return op.label() if why is None else f"{op.label()} ({why})"
