"""Layers known to have no closed-form limit: why, and what to use instead."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .._builder import EMPIRICAL, Builder, Refused
from .._values import Field
from ._batch_norm import COUPLED
from ._positions import avg_pool
from ._registry import matches

_MAXIMUM = "the maximum of correlated Gaussians has no closed-form covariance"
_ROWS: dict[str, tuple[dict[str, None], dict[str, None], str]] = {}  # modules, functions and what to use, by reason


def refused_layers() -> str:
    """Return the table of refused layers in Markdown, as the page of supported layers shows it.

    Monte Carlo and empirical kernels, which take nearly all of them, are left out of the column of what to use instead.

    Examples
    --------
    >>> print(refused_layers().splitlines()[2].split(" | ")[1])
    the maximum of correlated Gaussians has no closed-form covariance
    """
    lines = ["| modules and functions | why | instead |", "|---|---|---|"]
    for reason, (modules, functions, instead) in _ROWS.items():
        names = ", ".join(f"`{name}`" for name in [*modules, *functions])
        others = instead.removesuffix(EMPIRICAL).removesuffix("or ").rstrip("; ").removeprefix("use ")
        lines.append(f"| {names} | {reason} | {others or '–'} |")
    return "\n".join(lines)


def _enter(reason: str, instead: str, functions: tuple[object, ...], modules: tuple[type[nn.Module], ...]) -> None:
    """Enter a refusal in the table, without in-place forms and the exporter's operators."""
    of_modules, of_functions, _ = _ROWS.setdefault(reason, ({}, {}, instead))
    of_modules |= dict.fromkeys(module.__name__ for module in modules)
    names = (str(getattr(function, "__name__", function)) for function in functions)
    hidden = ("_", "native_", "boolean_dispatch", "fn")
    of_functions |= dict.fromkeys(name for name in names if not name.startswith(hidden) and "with_indices" not in name)


def _refuse(reason: str, instead: str, *functions: object, modules: tuple[type[nn.Module], ...] = ()) -> None:
    _enter(reason, instead, functions, modules)

    def refuse(builder: Builder, x: Any, *arguments: Any, **options: Any) -> Field:
        raise Refused(reason, instead, x if isinstance(x, Field) else None)

    matches(*functions, modules=dict.fromkeys(modules, ()), refuses=True)(refuse)


def _refuse_max_pool(ndim: int) -> None:
    def refuse(
        builder: Builder, x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *rest: Any, **more: Any
    ) -> Any:
        # The analysis continues with an average over the same windows, which has the same shape.
        then = avg_pool(ndim, builder, x, kernel_size, stride, padding) if isinstance(x, Field) else None
        raise Refused(_MAXIMUM, f"use nn.AvgPool{ndim}d or strided convolutions; or {EMPIRICAL}", then)

    name, module = f"max_pool{ndim}d", getattr(nn, f"MaxPool{ndim}d")
    functions = (getattr(F, name), getattr(torch, name), name, getattr(F, f"{name}_with_indices"))
    _enter(_MAXIMUM, "use nn.AvgPool or strided convolutions", functions, (module,))
    matches(*functions, modules={module: ("kernel_size", "stride", "padding")}, refuses=True)(refuse)


for _ndim in (1, 2, 3):
    _refuse_max_pool(_ndim)
_refuse(
    "a maximum over positions or channels has no closed-form covariance",
    f"use average pooling; or {EMPIRICAL}",
    F.adaptive_max_pool1d, F.adaptive_max_pool2d, F.adaptive_max_pool3d, torch.max, torch.amax, "max", "amax",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    modules=(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d),
)  # fmt: skip
_enter(
    "in training mode " + COUPLED,
    "use nn.LayerNorm or nn.GroupNorm; in evaluation mode it has a limit",
    (F.batch_norm,),
    (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
)
_refuse(
    COUPLED,
    f"use nn.LayerNorm or nn.GroupNorm; or {EMPIRICAL}",
    torch.batch_norm, "batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm",
    modules=(nn.SyncBatchNorm,),
)  # fmt: skip
_refuse(
    "its statistics run over one channel, so they stay random however wide the layer is",
    f"use nn.LayerNorm or nn.GroupNorm; or {EMPIRICAL}",
    F.instance_norm, torch.instance_norm, "instance_norm", F.local_response_norm,
    modules=(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.LocalResponseNorm),
)  # fmt: skip
_refuse(
    "attention between a decoder and an encoder: it reads two sequences, and only self-attention has a rule",
    f"use nn.TransformerEncoder; or {EMPIRICAL}",
    modules=(nn.TransformerDecoderLayer, nn.TransformerDecoder, nn.Transformer),
)
_refuse(
    "attention by a function that takes all its weights as arguments",
    f"use nn.MultiheadAttention, ntkit.layers.SelfAttention or F.scaled_dot_product_attention, which have a rule; or {EMPIRICAL}",
    F.multi_head_attention_forward,
)
_refuse(
    "softmax couples channels or positions and has no closed-form covariance",
    f"leave it out of the module (the loss applies it); or {EMPIRICAL}",
    F.softmax, F.log_softmax, F.softmin, torch.softmax, torch.log_softmax, "softmax", "log_softmax",
    modules=(nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.Softmin),
)  # fmt: skip
_refuse(
    "the gates of this recurrent layer multiply states that depend on them, so its states are not functions of one Gaussian "
    "value and their covariance has no closed form",
    f"use nn.RNN or nn.RNNCell, which have a limit; or {EMPIRICAL}",
    modules=(nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell),
)
_refuse(
    "a sum of rows of a table, looked up by integers",
    "use nn.Embedding and add up its tokens, x.sum(1)",
    F.embedding_bag,
    "embedding_bag",
    modules=(nn.EmbeddingBag,),
)
_refuse(
    "a slope drawn at random in every call",
    "use nn.LeakyReLU",
    F.rrelu, "rrelu",
    modules=(nn.RReLU,),
)  # fmt: skip
_refuse(
    "a linear layer written as a matrix product (GPT-2's Conv1D), or a product of random tensors",
    f"use nn.Linear layers with weights of their own (for Conv1D, with its weight transposed); or {EMPIRICAL}",
    torch.addmm, "addmm",
)  # fmt: skip
_refuse(
    "a product of random tensors by a matrix product",
    f"use nn.Linear layers with weights of their own; or {EMPIRICAL}",
    torch.baddbmm, torch.addbmm, "baddbmm", "addbmm",
    F.bilinear,
    modules=(nn.Bilinear,),
)  # fmt: skip
_refuse(
    "it moves channels into positions, so neighbouring positions hold different channels with different distributions",
    "use nn.Upsample and a convolution, or nn.ConvTranspose; or " + EMPIRICAL,
    F.pixel_shuffle, torch.pixel_shuffle, "pixel_shuffle",
    modules=(nn.PixelShuffle,),
)  # fmt: skip
_refuse(
    "it moves positions into channels, and a convolution after it reads each with separate weights",
    "use a convolution of stride 2, which is the same network; or " + EMPIRICAL,
    F.pixel_unshuffle, torch.pixel_unshuffle, "pixel_unshuffle",
    modules=(nn.PixelUnshuffle,),
)  # fmt: skip
