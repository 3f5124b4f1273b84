"""Kernels of finite networks sampled at random: the slow oracle of the exact ones."""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ntkit.trace import GainRule

__all__ = ["Estimate", "extrapolated_kernels", "sampled_kernels"]


class Estimate(NamedTuple):
    """A mean over independent networks and its standard error, each of shape (n1, n2)."""

    mean: Tensor
    error: Tensor


def sampled_kernels(
    module: nn.Module, x1: Tensor, x2: Tensor, gains: GainRule, n_samples: int, generator: torch.Generator
) -> tuple[Estimate, Estimate]:
    """Average the empirical NTK and the outputs' covariance over networks drawn at random.

    The output's entries (channels, and positions if any) are averaged over as well: the mean of the diagonal blocks.
    Layers with weights are drawn from N(0, w_std^2 / fan_in) and N(0, b_std^2); affine parameters keep their values.
    """
    module = copy.deepcopy(module).double().eval()
    layers = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
    }
    rates = {name: 1.0 for name, parameter in module.named_parameters() if parameter.requires_grad}
    scales: dict[str, float] = {}
    for name, layer in layers.items():
        fan_in = layer.weight[0].numel()
        trained = [p is not None and p.requires_grad for p in (layer.weight, layer.bias)]
        own = gains(name, fan_in, layer.bias is not None, *trained)
        prefix = f"{name}." if name else ""
        scales[prefix + "weight"] = float(own.w_std) / fan_in**0.5
        scales[prefix + "bias"] = float(own.b_std)
        # In the NTK parametrisation the trained variable is the weight divided by its standard deviation.
        rates.update({prefix + "weight": float(own.weight_rate) / fan_in, prefix + "bias": float(own.bias_rate)})
    ntks, nngps = [], []
    for _ in range(n_samples):
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if name in scales:
                    parameter.copy_(
                        scales[name] * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                    )
        ntk, nngp = _kernels(module, rates, x1, x2)
        ntks.append(ntk)
        nngps.append(nngp)
    return _estimate(ntks), _estimate(nngps)


def extrapolated_kernels(
    narrow: nn.Module, wide: nn.Module, x1: Tensor, x2: Tensor, gains: GainRule, n_samples: int, seed: int
) -> tuple[Estimate, Estimate]:
    """Estimate the limit from two networks, the second twice as wide: 2 K(2 w) - K(w) is free of the error of order 1/w."""
    generator = torch.Generator().manual_seed(seed)
    pairs = zip(
        sampled_kernels(narrow, x1, x2, gains, n_samples, generator),
        sampled_kernels(wide, x1, x2, gains, n_samples, generator),
        strict=True,
    )
    ntk, nngp = (Estimate(2 * b.mean - a.mean, (4 * b.error**2 + a.error**2).sqrt()) for a, b in pairs)
    return ntk, nngp


def _kernels(module: nn.Module, rates: dict[str, float], x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    x = torch.cat([x1, x2])
    f = module(x).flatten(1)
    nngp = f[: len(x1)] @ f[len(x1) :].T / f.shape[1]
    ntk = torch.zeros_like(nngp)
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if trained:
        gradients = [torch.autograd.grad(entry, list(trained.values()), retain_graph=True) for entry in f.flatten()]
        for index, name in enumerate(trained):
            jacobian = torch.stack([gradient[index].flatten() for gradient in gradients]).view(*f.shape, -1).flatten(1)
            ntk += rates[name] * jacobian[: len(x1)] @ jacobian[len(x1) :].T / f.shape[1]
    return ntk, nngp.detach()


def _estimate(samples: list[Tensor]) -> Estimate:
    stacked = torch.stack(samples)
    return Estimate(stacked.mean(0), stacked.std(0) / len(samples) ** 0.5)
