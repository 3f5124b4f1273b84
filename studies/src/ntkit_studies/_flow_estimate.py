"""What the experiments of :mod:`._flow_costs` will take: entries of their kernels and gradient flows, from trials here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ntkit import GradientFlow, Kernel, empirical, infinite_width, initialize, parametrize_ntk

from ._flow_costs import WIDTH, Regime
from ._rates import entry_seconds
from .skeleton import Estimate, fitted_seconds

__all__ = ["Part", "flow_estimate"]

_TRIAL = 100  # images of the smaller of two trials of a flow
_SIDE = 32  # pixels above which entries are not measured: their work grows as side^4, of finite networks as side^2
_MATRICES = 4  # of the training images, held at the same time


@dataclass(frozen=True)
class Part:
    """Some of a run: one kernel on images of one side.

    Attributes
    ----------
    regime, classes, side
        As in :class:`._flow_costs.Case`, but the side is that of the images.
    sizes
        Training images, the Gram matrix of the largest holding the others.
    draws
        How often.
    """

    regime: Regime
    classes: int
    side: int
    sizes: Sequence[int]
    draws: int


def flow_estimate(
    parts: Sequence[Part], test: int, channels: int, steps: float, network: Callable[[int, int], nn.Module], change: str
) -> Estimate:
    """Time entries of every kernel and flows of few points, whose products grow as n^2.

    Parameters
    ----------
    parts
        Of the run.
    test, channels, steps
        Test images, channels of the images, training time in steps.
    network
        Gives the network by the images' channels and its width.
    change
        What makes a run smaller.
    """
    entries: dict[tuple[Regime, int], float] = {}
    flows: dict[int, Callable[[int], float]] = {}
    seconds = 0.0
    for part in parts:
        place = part.regime, part.side
        if place not in entries:
            side, power = min(part.side, _SIDE), 2 if part.regime == "empirical NTK" else 4
            measured = entry_seconds(_kernel(part.regime, channels, network), (channels, side, side))
            entries[place] = measured * (part.side / side) ** power
        n = max(part.sizes)
        seconds += part.draws * (n * (n + 1) / 2 + n * test) * entries[place]
        if part.classes not in flows:
            flows[part.classes] = fitted_seconds(_Flow(part.classes, steps), _TRIAL, 2)
        seconds += part.draws * sum(map(flows[part.classes], part.sizes))
    largest = max(max(part.sizes) for part in parts)
    basis = (
        f"Measured here: entries of each kernel between few images of up to {_SIDE} pixels, and flows of up to "
        f"{2 * _TRIAL} points, which grow as n^2."
    )
    return Estimate(seconds, 8.0 * largest * (_MATRICES * largest + test), basis, change)


def _kernel(regime: Regime, channels: int, network: Callable[[int, int], nn.Module]) -> Kernel:
    if regime == "empirical NTK":
        generator = torch.Generator().manual_seed(0)
        return empirical(initialize(parametrize_ntk(network(channels, WIDTH)), generator=generator)).ntk
    limit = infinite_width(network(channels, 1))
    return limit.ntk if regime == "NTK" else limit.nngp


@dataclass(frozen=True)
class _Flow:
    """Trains on random points."""

    classes: int
    steps: float

    def __call__(self, n: int) -> None:
        x = torch.randn(n, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        gram, labels = (x @ x.T / 16 + 1) ** 2, torch.arange(n) % self.classes
        binary = self.classes == 2
        targets = labels.double() if binary else nn.functional.one_hot(labels, self.classes).double()
        loss = "binary_cross_entropy" if binary else "cross_entropy"
        GradientFlow("precomputed", loss=loss, integrator="RKC").fit(gram, targets).predict(None, t=self.steps / n)
