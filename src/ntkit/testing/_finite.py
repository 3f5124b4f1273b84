"""Kernels of finite networks sampled at random: the slow oracle of the exact ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntkit.common import copy_module, ntk_gains
from ntkit.finite import Estimate, initialize, parametrize_ntk
from ntkit.trace import GainRule

__all__ = ["Estimate", "extrapolated_kernels", "sampled_kernels"]


def sampled_kernels(
    module: nn.Module, x1: Tensor, x2: Tensor, gains: GainRule, n_samples: int, generator: torch.Generator
) -> tuple[Estimate, Estimate]:
    """Average the empirical NTK and the outputs' covariance over networks drawn at random.

    The output's entries (channels, and positions if any) are averaged over as well: the mean of the diagonal blocks. The slow
    way, by forming every derivative: :func:`ntkit.monte_carlo` is the fast one.
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


def _kernels(module: nn.Module, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    f = module(torch.cat([x1, x2])).flatten(1)
    nngp = (f[: len(x1)] @ f[len(x1) :].T / f.shape[1]).detach()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not trained:
        return torch.zeros_like(nngp), nngp
    rows = [torch.autograd.grad(entry, trained, retain_graph=True) for entry in f.flatten()]
    jacobian = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows]).view(len(f), -1)
    return jacobian[: len(x1)] @ jacobian[len(x1) :].T / f.shape[1], nngp


def _estimate(samples: list[Tensor]) -> Estimate:
    stacked = torch.stack(samples)
    return Estimate(stacked.mean(0), stacked.std(0) / len(samples) ** 0.5)
