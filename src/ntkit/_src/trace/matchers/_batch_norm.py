"""Batch normalisation in evaluation mode, where its statistics are numbers: (x - m) / sqrt(v + eps), alike for all channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn import functional as F

from ntkit._src.program import FixedNorm

from .._builder import EMPIRICAL, Builder, Refused, tensor_number
from .._values import CHANNEL, Block, Field
from ._arithmetic import scaled, shifted
from ._linear import layer_parameters
from ._norm import affine_parameters
from ._registry import matches

COUPLED = "its statistics couple each input with the rest of the batch, so there is no kernel of two inputs"


def _arguments(module: nn.Module, path: str) -> Mapping[str, Any]:
    assert isinstance(module, nn.modules.batchnorm._BatchNorm)
    fixed = {"running_mean": module.running_mean, "running_var": module.running_var, "eps": module.eps}
    return {**layer_parameters(module, path), **fixed}


@matches(
    F.batch_norm,
    modules=dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _arguments),
    family="normalisation",
    note="batch norm in evaluation mode with one mean and one variance for all channels, such as those it is built with",
)
def batch_norm(
    builder: Builder, x: Field, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Field:  # fmt: skip
    """Apply the affine map."""
    trains = builder.path in builder.training
    if training or trains or running_mean is None or running_var is None:
        own = "call module.eval() if its running statistics are meant; or " if trains else ""
        raise Refused(COUPLED, f"{own}use nn.LayerNorm or nn.GroupNorm; or {EMPIRICAL}", x)
    mean, variance = tensor_number(running_mean), tensor_number(running_var)
    if mean is None or variance is None:
        raise Refused(
            "its running statistics differ between channels, so that they have different distributions",
            f"set them back with reset_running_stats(), or use nn.LayerNorm or nn.GroupNorm; or {EMPIRICAL}",
            x,
        )
    if len(x.dims) < 2 or x.core(1) != (CHANNEL,) or len(x.blocks) > 1:
        raise Refused(
            "dimension 1 of its input is not the channels of one layer", "keep the channels in dimension 1", x
        )
    scale, shift, trained_weight, trained_bias = affine_parameters(builder, x, weight, bias)
    if mean:
        x = shifted(builder, x, -mean)
    op = FixedNorm((variance + float(eps)) ** -0.5, trained_weight is not None, trained_bias is not None)

    def apply(block: Block) -> int:
        info, node = builder.info[block.node], builder.nodes[block.node]
        return builder.add(
            op,
            (block.node,),
            node.positions,
            why_not=info.why_not,
            centred=node.centred,
            affine=info.affine or ("whole" if op.weight_trained else ""),
            held=lambda read: (
                None if trained_weight is None else read(trained_weight),
                None if trained_bias is None else read(trained_bias),
            ),
        )

    result = scaled(builder, builder.each_block(x, apply), scale)
    return shifted(builder, result, shift) if shift else result
