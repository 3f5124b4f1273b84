"""Kernels of finite networks sampled at random: the slow oracle of the exact ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ntkit._src.common import copy_module, ntk_gains
from ntkit._src.finite import Estimate, initialize, parametrize_ntk
from ntkit._src.finite._parametrize import gain_tensors
from ntkit._src.trace import GainRule, Tracer, Weight

_CHUNK = 2**20  # numbers of the Jacobians of an output channel of all networks that are evaluated together


def sampled_kernels(
    module: nn.Module, x1: Tensor, x2: Tensor | None, gains: GainRule, n_samples: int, generator: torch.Generator
) -> tuple[Estimate, Estimate]:
    """Average the empirical NTK and the outputs' covariance over networks drawn at random; x2 None is x1.

    This also averages over the output's entries (channels, and positions if any): the mean of the diagonal blocks. It is slow,
    because it forms every derivative; :func:`ntkit.monte_carlo` is the fast way.
    """
    module = copy_module(module).double().eval()
    given = {"w_std": gains.w_std, "b_std": gains.b_std, "overrides": gains.overrides}
    given = {name: value for name, value in given.items() if value is not None}
    if gains.init == "ntk" and not ntk_gains(module):
        parametrize_ntk(module, **given)  # type: ignore[arg-type]
    own = given if gains.init == "standard" else {}
    numbers = sum(p.numel() for p in module.parameters()) * (len(x1) + (0 if x2 is None else len(x2)))
    together = min(n_samples, 1 + _CHUNK // max(numbers, 1))
    sizes = [min(together, n_samples - start) for start in range(0, n_samples, together)]
    chunks = [_kernels(module, _draws(module, gains, own, size, generator), x1, x2) for size in sizes]
    ntks, nngps = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    return _estimate(ntks), _estimate(nngps)


def extrapolated_kernels(
    narrow: nn.Module, wide: nn.Module, x1: Tensor, x2: Tensor | None, gains: GainRule, n_samples: int, seed: int
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

    The estimates of K[p, p'], one for each node, have the shape (n, n, P1, P1, P2, P2, ...).
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
    return [_estimate(torch.stack(node)) for node in samples]


def _drawn(values: Mapping[str, Tensor], dtype: torch.dtype, weight: Weight) -> Tensor:
    return values[weight.path] if weight.path in values else weight.parameter.detach().to(dtype)


def _pairs(value: Tensor, n: int, positions: tuple[int, ...]) -> Tensor:
    """Average products of all pairs of inputs and positions over the channels, with paired position axes adjacent."""
    channels = value.shape[-1] if value.ndim else 1
    flat = value.expand(n, *positions, channels).reshape(-1, channels)
    product = (flat @ flat.T / channels).reshape(n, *positions, n, *positions)
    rank = 1 + len(positions)
    return product.permute([dim for axis in range(rank) for dim in (axis, rank + axis)])


def _draws(
    module: nn.Module, gains: GainRule, given: Mapping[str, Any], n: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Draw every parameter n times as :func:`ntkit.initialize` does, shape (n, ...)."""
    normal = {} if gains.init == "torch" else {id(tensor.parameter): tensor for tensor in gain_tensors(module)}
    others = {name: parameter for name, parameter in module.named_parameters() if id(parameter) not in normal}
    resets: list[dict[str, Tensor]] = []
    for index in range(n):
        initialize(module, gains.init, **given, generator=generator)
        resets.append({name: parameter.detach().clone() for name, parameter in others.items()})
        if index == 1 and all(torch.equal(resets[0][name], resets[1][name]) for name in others):
            break  # constants, as the affine parameters of norms are; what is normal is drawn in one go, which is quick
    draws = {}
    for name, parameter in module.named_parameters():
        if name in others:
            values = torch.stack([reset[name] for reset in resets])
            draws[name] = values if len(values) == n else values[:1].expand(n, *parameter.shape)
        else:
            tensor = normal[id(parameter)]
            std = 1.0 if gains.init == "ntk" else tensor.std(tensor.gain(gains))
            draws[name] = std * torch.randn(n, *parameter.shape, generator=generator, dtype=parameter.dtype)
    return draws


def _kernels(module: nn.Module, draws: Mapping[str, Tensor], x1: Tensor, x2: Tensor | None) -> tuple[Tensor, Tensor]:
    """Give the NTK and the product of outputs of each drawn network, shapes (draws, n1, n2)."""
    x = x1 if x2 is None else torch.cat([x1, x2])
    first, second = slice(len(x1)), slice(0 if x2 is None else len(x1), None)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    count = len(next(iter(draws.values())))
    # Each input has a copy of the parameters, so that a backward pass gives each input's own derivatives.
    leaves = {
        name: draw.repeat_interleave(len(x), dim=0).requires_grad_(name in trained) for name, draw in draws.items()
    }
    inputs = x.repeat(count, *(1 for _ in x.shape[1:]))
    f = torch.func.vmap(partial(_outputs, module))(leaves, inputs)
    f = f.unflatten(0, (count, len(x)))
    channels = f.shape[2]
    nngp = (f[:, first] @ f[:, second].mT / channels).detach()
    ntk = torch.zeros_like(nngp)
    for channel in range(channels if trained else 0):
        wanted = [leaves[name] for name in leaves if name in trained]
        for gradient in torch.autograd.grad(f[..., channel].sum(), wanted, retain_graph=channel < channels - 1):
            rows = gradient.reshape(count, len(x), -1)
            ntk += rows[:, first] @ rows[:, second].mT / channels
    return ntk, nngp


def _outputs(module: nn.Module, values: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Give f(x) of one input with other parameters, flat; layers that occur twice and shared parameters get one value."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    everywhere = {
        f"{path}.{name}".lstrip("."): values[names[id(parameter)]]
        for path, layer in module.named_modules()
        for name, parameter in layer.named_parameters(recurse=False)
    }
    output: Tensor = torch.func.functional_call(module, everywhere, (x[None],), tie_weights=False)
    return output.flatten()


def _estimate(samples: Tensor) -> Estimate:
    return Estimate(samples.mean(0), samples.std(0) / len(samples) ** 0.5)
