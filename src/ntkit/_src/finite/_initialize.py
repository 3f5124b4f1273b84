"""Initialisation: in the NTK parametrisation, in the standard one, or by PyTorch's default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ntkit._src.common import check_generator, check_module, restored_generator
from ntkit._src.trace import GainRule, Init
from ntkit.errors import InputError

from ._parametrize import GainTensor, check_overrides, check_readable, gain_tensors


def initialize(
    module: nn.Module,
    scheme: Init = "ntk",
    w_std: float | Tensor | None = None,
    b_std: float | Tensor | None = None,
    overrides: Mapping[str, Mapping[str, float | Tensor]] | None = None,
    generator: torch.Generator | None = None,
) -> nn.Module:
    r"""Redraw the weights of a module in place from the distribution that :func:`ntkit.infinite_width` assumes.

    ==============  ===============================  ==========================================
    scheme          weights of Linear, Conv layers   biases
    ==============  ===============================  ==========================================
    ``"ntk"``       raw parameters N(0, 1)           raw parameters N(0, 1)
    ``"standard"``  N(0, w_std^2 / fan_in)           N(0, b_std^2)
    ``"torch"``     PyTorch's default                PyTorch's default
    ==============  ===============================  ==========================================

    The projections of ``MultiheadAttention``, ``RNN`` and ``RNNCell`` are drawn like linear layers. Every other layer with a
    ``reset_parameters`` method (norms, with their running statistics; embeddings; PReLU; LSTM, GRU; your own) is reset by
    it. Parameters of modules without such a method keep their values. Frozen parameters are drawn too: they are random but
    not trained. Frozen affine parameters of norms and frozen slopes of ``PReLU`` are never random, so they keep their
    values.

    Parameters
    ----------
    module
        The module, changed in place. ``"ntk"`` needs one that went through :func:`ntkit.parametrize_ntk`, which holds the
        gains; the other schemes need plain weights.
    scheme
        The distribution; the ``init`` of :func:`ntkit.infinite_width`.
    w_std, b_std, overrides
        Gains for ``"standard"``; default sqrt(2) and 0.
    generator
        Generator on the CPU; None: torch's global one. The same seed gives the same weights.

    Returns
    -------
    nn.Module
        ``module``.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 1000), nn.ReLU(), nn.Linear(1000, 1))
    >>> net = ntkit.initialize(net, "standard", w_std=1.0, generator=torch.Generator().manual_seed(0))
    >>> bool((net[2].weight.std() * 1000**0.5 - 1).abs() < 0.1), net[0].bias.abs().max().item()
    (True, 0.0)
    """
    check_module(module)
    check_generator(generator)
    tensors = gain_tensors(module)
    gains = {"w_std": w_std, "b_std": b_std, "overrides": overrides}
    given = [name for name, value in gains.items() if value is not None]
    if given and scheme != "standard":
        where = "ntkit.parametrize_ntk holds them" if scheme == "ntk" else "PyTorch's default has its own variances"
        raise InputError(f'{", ".join(given)} must be left out with scheme="{scheme}": {where}.')
    rule = GainRule(w_std, b_std, scheme, check_overrides(overrides, tensors))
    _check_parametrization(scheme, tensors)
    with seeded(generator):
        _reset(module)
    if scheme == "torch":
        return module
    with torch.no_grad():
        for tensor in tensors:
            parameter = tensor.parameter
            std = 1.0 if scheme == "ntk" else tensor.std(tensor.gain(rule))
            # Drawn on the CPU, so that a seed gives the same weights on every device.
            draw = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.copy_(std * draw)
    return module


@contextmanager
def seeded(generator: torch.Generator | None) -> Iterator[None]:
    """Make torch's global generator follow another inside the context, then restore it; None leaves it alone."""
    if generator is None:
        yield
        return
    seed = int(torch.randint(2**62, (), generator=generator))
    with restored_generator(seed):
        yield


def _reset(module: nn.Module) -> None:
    """Call each layer's own reset."""
    outputs = {layer.out_proj for layer in module.modules() if isinstance(layer, nn.MultiheadAttention)}
    for layer in module.modules():
        if parametrize.is_parametrized(layer):
            continue  # a reset would write to computed weights; the raw parameters are drawn later
        if layer in outputs:
            continue  # drawn with its attention, which then sets its bias to zero
        reset = getattr(layer, "reset_parameters", None)
        reset = partial(reset_attention, layer) if isinstance(layer, nn.MultiheadAttention) else reset
        if callable(reset):
            numbers = [p for p in layer.parameters() if isinstance(layer, _NUMBERS) and not p.requires_grad]
            values = [p.detach().clone() for p in numbers]
            reset()
            with torch.no_grad():
                for parameter, value in zip(numbers, values, strict=True):
                    parameter.copy_(value)


def reset_attention(layer: nn.MultiheadAttention) -> None:
    """Draw the weights of attention as PyTorch does, those of its output layer too."""
    if not parametrize.is_parametrized(layer.out_proj):
        layer.out_proj.reset_parameters()
    layer._reset_parameters()


# Layers whose reset sets numbers instead of drawing them.
_NUMBERS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, nn.modules.batchnorm._NormBase)


def _check_parametrization(scheme: str, tensors: list[GainTensor]) -> None:
    check_readable(tensors, "drawn afresh")
    scaled = [tensor for tensor in tensors if tensor.source.scaling is not None]
    if scheme == "ntk" and len(scaled) < len(tensors):
        plain = next(tensor for tensor in tensors if tensor.source.scaling is None)
        raise InputError(
            f'scheme="ntk" needs a module in the NTK parametrisation, but layer {plain.path!r} is not. '
            'Write ntkit.parametrize_ntk(module) first, or scheme="standard".'
        )
    if scheme != "ntk" and scaled:
        raise InputError(
            f'scheme="{scheme}" needs plain weights, but layer {scaled[0].path!r} is in the NTK parametrisation. '
            "Write ntkit.remove_ntk(module) first."
        )
