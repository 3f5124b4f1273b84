"""Kernels of finite networks sampled at random: the slow oracle of the exact ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from ntkit.common import copy_module, ntk_gains
from ntkit.finite import Estimate, initialize, parametrize_ntk
from ntkit.trace import GainRule, Tracer, Weight

__all__ = ["Estimate", "extrapolated_kernels", "sampled_kernels", "sampled_node_covariances"]


def sampled_kernels(
    module: nn.Module, x1: Tensor, x2: Tensor, gains: GainRule, n_samples: int, generator: torch.Generator
) -> tuple[Estimate, Estimate]:
    """Average the empirical NTK and the outputs' covariance over networks drawn at random.

    This also averages over the output's entries (channels, and positions if any): the mean of the diagonal blocks. It is slow,
    because it forms every derivative; :func:`ntkit.monte_carlo` is the fast way.
    """
    module = copy_module(module).double().eval()
    given = {"w_std": gains.w_std, "b_std": gains.b_std, "overrides": gains.overrides}
    given = {name: value for name, value in given.items() if value is not None}
    own = given if gains.init == "standard" else {}
    if gains.init == "ntk" and not ntk_gains(module):
        parametrize_ntk(module, **given)  # type: ignore[arg-type]
    ntks, nngps = [], []
    for _ in range(n_samples):
        initialize(module, gains.init, **own, generator=generator)  # type: ignore[arg-type]
        ntk, nngp = _kernels(module, x1, x2)
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


def sampled_node_covariances(
    module: nn.Module, x: Tensor, gains: GainRule, n_samples: int, seed: int
) -> list[Estimate]:
    """Average u u' over the channels of every node of the module's program and over random finite networks.

    Returns
    -------
    list
        For each node an estimate of K[p, p'], shape (n, n, P1, P1, P2, P2, ...).
    """
    _, network = Tracer(module, gains).finite_network(x.shape[1:])
    generator = torch.Generator().manual_seed(seed)
    samples: list[list[Tensor]] = [[] for _ in network.builder.nodes]
    for _ in range(n_samples):
        drawn = {
            weight.path: std * torch.randn(weight.parameter.shape, generator=generator, dtype=x.dtype)
            for weight, std in network.builder.random
        }
        values = network.values(x, partial(_drawn, drawn, x.dtype))
        for index, value in enumerate(values):
            samples[index].append(_pairs(value, len(x), network.builder.nodes[index].positions))
    return [_estimate(node) for node in samples]


def _drawn(values: Mapping[str, Tensor], dtype: torch.dtype, weight: Weight) -> Tensor:
    return values[weight.path] if weight.path in values else weight.parameter.detach().to(dtype)


def _pairs(value: Tensor, n: int, positions: tuple[int, ...]) -> Tensor:
    """Average products of all pairs of inputs and positions over the channels, with paired position axes adjacent."""
    channels = value.shape[-1] if value.ndim else 1
    flat = value.expand(n, *positions, channels).reshape(-1, channels)
    product = (flat @ flat.T / channels).reshape(n, *positions, n, *positions)
    rank = 1 + len(positions)
    return product.permute([dim for axis in range(rank) for dim in (axis, rank + axis)])


def _kernels(module: nn.Module, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    f = module(torch.cat([x1, x2])).flatten(1)
    nngp = (f[: len(x1)] @ f[len(x1) :].T / f.shape[1]).detach()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        return torch.zeros_like(nngp), nngp
    each = torch.eye(f.numel(), dtype=f.dtype).view(-1, *f.shape)
    parts = torch.autograd.grad(f, trained, each, is_grads_batched=True)
    jacobian = torch.cat([part.flatten(1) for part in parts], 1).view(len(f), -1)
    return jacobian[: len(x1)] @ jacobian[len(x1) :].T / f.shape[1], nngp


def _estimate(samples: list[Tensor]) -> Estimate:
    stacked = torch.stack(samples)
    return Estimate(stacked.mean(0), stacked.std(0) / len(samples) ** 0.5)
