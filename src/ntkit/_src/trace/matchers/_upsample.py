"""Interpolation of positions: Upsample and F.interpolate, up or down, in every mode of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._builder import Builder, Refused
from .._values import CHANNEL, Field
from ._positions import map_axis
from ._registry import matches

_OTHER = 2  # length of the other axes


def _axis_matrix(function: Callable[[Tensor, int], Tensor], index: int, ndim: int, size: int) -> Tensor:
    """Read the matrix of one axis from a separable map of unit vectors that are constant along the other axes."""
    units = torch.eye(size, dtype=torch.float64).reshape(size, 1, *(size if i == index else 1 for i in range(ndim)))
    # Length one would not do: torch 2.13 then takes the tensor for channels-last and smooths the wrong axis.
    units = units.expand(-1, 1, *(size if i == index else _OTHER for i in range(ndim))).contiguous()
    mapped = function(units, index).movedim(2 + index, 1)
    return mapped.flatten(2)[:, :, 0].T


def _one(values: Any, index: int, ndim: int, other: float) -> tuple[Any, ...] | None:
    """Return an option for one axis, ``other`` for the rest; ``values`` holds one per axis, or one for all."""
    if values is None:
        return None
    value = values[index] if isinstance(values, (tuple, list, torch.Size)) else values
    return tuple(value if i == index else other for i in range(ndim))


@matches(
    F.interpolate,
    modules={nn.Upsample: ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")},
    family="up-sampling",
    note="every mode, `align_corners` either way, up or down to any size",
)
def interpolate(
    builder: Builder, x: Field, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
    align_corners: bool | None = None, recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Field:  # fmt: skip
    """x' = A x along each axis with the A of torch itself; nearest neighbours only select."""
    ndim = len(x.dims) - 2
    if x.core(1) != (CHANNEL,):
        raise Refused(
            "dimension 1 of its input is not the channels alone", "keep the channels in dimension 1, positions after it"
        )

    def along(units: Tensor, index: int) -> Tensor:
        sizes, factors = _one(size, index, ndim, _OTHER), _one(scale_factor, index, ndim, 1.0)
        return F.interpolate(units, sizes, factors, mode, align_corners, recompute_scale_factor, antialias)

    for index in range(ndim):
        x, axis = builder.axis_of(x, 2 + index)
        matrix = _axis_matrix(along, index, ndim, x.positions[axis])
        x = map_axis(builder, x, axis, matrix, f"{mode} to {len(matrix)}")
    return x


matches(F.upsample, F.upsample_nearest)(interpolate)


@matches(F.upsample_bilinear)
def upsample_bilinear(builder: Builder, x: Field, size: Any = None, scale_factor: Any = None) -> Field:
    """Interpolate between corners that stay where they are."""
    return interpolate(builder, x, size, scale_factor, "bilinear", True)


def _exported(mode: str, name: str, aligned: bool, antialias: bool = False) -> None:
    """Match an operator of the exporter: (x, size, [align_corners], scale factors, one or one per axis)."""

    def build(builder: Builder, x: Field, output_size: Any = None, *rest: Any) -> Field:
        align = bool(rest[0]) if aligned and rest else None
        factors: Sequence[Any] = [factor for factor in rest[1 if aligned else 0 :] if factor is not None]
        if len(factors) == 1 and isinstance(factors[0], (tuple, list)):
            factors = factors[0]
        # If sizes and factors are both given, the sizes count and the factors determine where the samples lie.
        scale = [float(factor) for factor in factors] if factors else None
        if scale is not None and output_size is not None:
            sizes = [int(length * factor) for length, factor in zip(x.shape[2:], scale, strict=True)]
            if sizes != [int(length) for length in output_size]:
                raise Refused("it is given sizes and scale factors that differ", "give one of them")
        size = None if scale is not None else [int(length) for length in output_size]
        return interpolate(builder, x, size, scale, mode, align, antialias=antialias)

    matches(name)(build)


for _ndim, _mode in ((1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")):
    _exported(_mode, f"upsample_{_mode}{_ndim}d", aligned=True)
    if _ndim == 2:
        _exported(_mode, f"_upsample_{_mode}{_ndim}d_aa", aligned=True, antialias=True)
for _ndim in (1, 2, 3):
    _exported("nearest", f"upsample_nearest{_ndim}d", aligned=False)
    _exported("nearest-exact", f"_upsample_nearest_exact{_ndim}d", aligned=False)
