"""Normalisations whose statistics run over infinitely many channels: LayerNorm, GroupNorm and RMSNorm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.program import Normalize

from .._builder import Builder, Held, Refused
from .._layout import entry_numbers, rearranged
from .._values import BATCH, CHANNEL, Block, Field, Weight
from ._arithmetic import scaled, shifted
from ._linear import check_plain, with_parameters
from ._registry import matches


def _normalize(builder: Builder, x: Field, op: Normalize, weight: object, bias: object, atoms: Sequence[int]) -> Field:
    """Normalise; ``atoms`` are what the affine parameters enumerate, in their order."""
    if any(block.merged for block in x.blocks):
        raise Refused("it normalises values concatenated from flattened parts", "normalise before torch.cat", x)
    scale, shift, trained_weight, trained_bias = affine_parameters(builder, x, weight, bias)
    op = replace(op, weight_trained=trained_weight is not None, bias_trained=trained_bias is not None)
    total = builder.join(x)
    numbers = entry_numbers(builder, x, atoms)
    axes = sorted(atom for atom in atoms if atom >= 0)
    starts = accumulate((block.width for block in x.blocks), initial=0)

    own = "" if not op.weight_trained else "positions" if op.affine_axes else "whole"

    def apply(block: Block) -> int:
        info, node = builder.info[block.node], builder.nodes[block.node]
        whole = len(x.blocks) == 1
        start = next(starts) * math.prod(x.positions[axis] for axis in axes)
        shape = (block.width, *(x.positions[axis] if axis in axes else 1 for axis in range(len(x.positions))))
        return builder.add(
            op,
            (block.node, total),
            node.positions,
            why_not=info.why_not,
            # A single block is centred by its own mean unless that mean differs between the positions normalised over.
            centred=node.centred or (whole and op.centres and not op.axes),
            affine=own if info.affine != "part" and own == "positions" else info.affine or own,
            held=_held(trained_weight, trained_bias, numbers, start, shape),
        )

    result = builder.each_block(x, apply)
    result = scaled(builder, result, scale)
    return shifted(builder, result, shift) if shift else result


def affine_parameters(
    builder: Builder, x: Field, weight: object, bias: object
) -> tuple[float, float, Weight | None, Weight | None]:
    """Return the common values of a norm's weight and bias, and those of them that are trained, from one and zero."""
    for value in (weight, bias):
        if isinstance(value, Weight):
            check_plain(value, then=x)
    scale, shift = _uniform(weight, 1.0, x), _uniform(bias, 0.0, x)
    trained_weight, trained_bias = (v if isinstance(v, Weight) and v.trained else None for v in (weight, bias))
    for name, value, number, start in (("weight", trained_weight, scale, 1.0), ("bias", trained_bias, shift, 0.0)):
        if value is not None and number != start:
            raise Refused(
                f"its {name} is trained from values other than {start:g}, which the limit assumes",
                f"set it back with reset_parameters(), or freeze it: module.{name}.requires_grad_(False)",
                x,
            )
    if trained_bias is not None and scale != 1.0:
        raise Refused(
            f"its bias is trained while its weight is fixed at {scale:g}, which has no rule",
            "freeze the bias, or use a weight of one",
            x,
        )
    builder.claim("affine parameters", trained_weight, trained_bias)
    return scale, shift, trained_weight, trained_bias


def _held(weight: Weight | None, bias: Weight | None, numbers: Tensor, start: int, shape: tuple[int, ...]) -> Held:
    """Slice a block's affine parameters, shape (*positions or ones, channels)."""

    def cut(read: Callable[[Weight], Tensor], parameter: Weight | None) -> Tensor | None:
        if parameter is None:
            return None
        entries = rearranged(read(parameter).flatten(), numbers, 0)[start : start + math.prod(shape)]
        return entries.reshape(shape).movedim(0, -1)

    return lambda read: (cut(read, weight), cut(read, bias))


def _uniform(value: object, default: float, x: Field) -> float:
    """Return the common value of all entries of an affine parameter."""
    tensor = value.parameter if isinstance(value, Weight) else value
    if tensor is None:
        return default
    if not isinstance(tensor, Tensor):
        raise Refused("its affine weight or bias is computed, not a parameter", "use nn.LayerNorm", x)
    first = float(tensor.detach().flatten()[0])
    if not bool((tensor == first).all()):
        raise Refused(
            "its affine weight or bias differs between channels, so that they have different distributions",
            "set it back with reset_parameters()",
            x,
        )
    return first


@matches(
    F.layer_norm,
    torch.layer_norm,
    "layer_norm",
    modules={nn.LayerNorm: with_parameters("normalized_shape", "eps")},
    family="normalisation",
    note="over the channels, alone or with positions; affine parameters at one and zero, trained where they require gradients",
)
def layer_norm(
    builder: Builder, x: Field, normalized_shape: Any, weight: object = None, bias: object = None, eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Field:  # fmt: skip
    """Normalise over the last dimensions, which must hold the channels."""
    atoms, axes = _last_dimensions(x, normalized_shape)
    return _normalize(builder, x, Normalize(axes, float(eps), False, False, axes), weight, bias, atoms)


@matches(
    F.rms_norm,
    torch.rms_norm,
    "rms_norm",
    modules={nn.RMSNorm: with_parameters("normalized_shape", "eps", names=("weight",))},
    family="normalisation",
    note="RMSNorm with `eps=None` takes that of float64",
)
def rms_norm(
    builder: Builder, x: Field, normalized_shape: Any, weight: object = None, eps: float | None = None
) -> Field:
    """Divide by the root of the mean square over the last dimensions, which must hold the channels."""
    atoms, axes = _last_dimensions(x, normalized_shape)
    added = torch.finfo(torch.float64).eps if eps is None else float(eps)
    op = Normalize(axes, added, False, False, axes, centres=False)
    return _normalize(builder, x, op, weight, None, atoms)


def _last_dimensions(x: Field, normalized_shape: Any) -> tuple[list[int], tuple[int, ...]]:
    """Return the atoms of the last dimensions in order, and the position axes among them."""
    count = len(normalized_shape) if isinstance(normalized_shape, (tuple, list, torch.Size)) else 1
    atoms = [atom for dim in x.dims[-count:] for atom in dim]
    if CHANNEL not in atoms:
        raise Refused(
            "it normalises over positions without the channels, so its statistics stay random",
            "normalise over the dimension that holds the channels",
            x,
        )
    if BATCH in atoms:
        raise Refused("it normalises over the batch", "normalise over channels", x)
    return atoms, tuple(sorted(atom for atom in atoms if atom >= 0))


@matches(
    F.group_norm,
    torch.group_norm,
    "group_norm",
    modules={nn.GroupNorm: with_parameters("num_groups", "eps")},
    family="normalisation",
)
def group_norm(
    builder: Builder, x: Field, num_groups: int, weight: object = None, bias: object = None, eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Field:  # fmt: skip
    """Normalise over all positions and the channels of each group; every group has the same limit."""
    if x.core(1) != (CHANNEL,):
        raise Refused("dimension 1 of its input is not the channels alone", "keep the channels in dimension 1", x)
    if num_groups == x.channels:
        raise Refused(
            "one channel per group (InstanceNorm): its statistics run over one channel and stay random however wide it is",
            "use fewer groups, such as nn.GroupNorm(1, channels)",
            x,
        )
    if num_groups > 1 and len(x.blocks) > 1:
        raise Refused(
            "groups of concatenated channels have different distributions", "use nn.GroupNorm(1, channels)", x
        )
    axes = tuple(sorted(atom for dim in x.dims[2:] for atom in dim))
    op = Normalize(axes, float(eps), False, False, groups=num_groups)
    return _normalize(builder, x, op, weight, bias, (CHANNEL,))
