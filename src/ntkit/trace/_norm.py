"""Normalisations whose statistics run over infinitely many channels: LayerNorm and GroupNorm."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ntkit.program import Normalize

from ._builder import Builder, Refused
from ._registry import matches
from ._values import BATCH, CHANNEL, Block, Field, Weight

__all__: list[str] = []


def _affine(module: Any, path: str) -> dict[str, Weight | None]:
    found = {name: getattr(module, name) for name in ("weight", "bias")}
    return {name: None if value is None else Weight(f"{path}.{name}", value) for name, value in found.items()}


def _normalize(
    builder: Builder, x: Field, axes: tuple[int, ...], eps: float, weight: object, bias: object, per_position: bool
) -> Field:
    for value in (weight, bias):
        if value is not None and not isinstance(value, Weight):
            raise Refused("its affine weight or bias is computed, not a parameter of its own", "use nn.LayerNorm", x)
    trained = [isinstance(value, Weight) and value.trained for value in (weight, bias)]
    op = Normalize(axes, float(eps), trained[0], trained[1], axes if per_position else ())
    total = builder.join(x) if not any(block.merged for block in x.blocks) else None
    if total is None:
        raise Refused("it normalises values concatenated from flattened parts", "normalise before torch.cat", x)

    def apply(block: Block) -> int:
        info, node = builder.info[block.node], builder.nodes[block.node]
        whole = len(x.blocks) == 1
        return builder.add(
            op,
            (block.node, total),
            node.positions,
            gaussian=info.gaussian,
            why_not=info.why_not,
            # A single block is centred by its own mean unless that mean differs between the positions pooled over.
            centred=node.centred if not whole else (node.centred or not axes),
            affine=info.affine or ("whole" if trained[0] else ""),
        )

    return builder.each_block(x, apply)


@matches(
    F.layer_norm,
    torch.layer_norm,
    "layer_norm",
    modules={
        nn.LayerNorm: lambda module, path: {
            **_affine(module, path),
            "normalized_shape": module.normalized_shape,
            "eps": module.eps,
        }
    },
    family="normalisation",
    note="over the channels, alone or with positions; affine parameters at one and zero, trained where they require gradients",
)
def layer_norm(
    builder: Builder, x: Field, normalized_shape: Any, weight: object = None, bias: object = None, eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Field:  # fmt: skip
    """Normalise over the last dimensions, which must hold the channels."""
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
    axes = tuple(sorted(atom for atom in atoms if atom >= 0))
    return _normalize(builder, x, axes, eps, weight, bias, per_position=True)


@matches(
    F.group_norm,
    torch.group_norm,
    "group_norm",
    modules={
        nn.GroupNorm: lambda module, path: {
            **_affine(module, path),
            "num_groups": module.num_groups,
            "eps": module.eps,
        }
    },
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
            "one channel a group (InstanceNorm): its statistics run over one channel and stay random however wide it is",
            "use fewer groups, such as nn.GroupNorm(1, channels)",
            x,
        )
    if num_groups > 1 and len(x.blocks) > 1:
        raise Refused(
            "groups of concatenated channels have different distributions", "use nn.GroupNorm(1, channels)", x
        )
    axes = tuple(sorted(atom for dim in x.dims[2:] for atom in dim))
    return _normalize(builder, x, axes, eps, weight, bias, per_position=False)
