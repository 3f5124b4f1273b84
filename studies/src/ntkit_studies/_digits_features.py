"""What a finite network learns that its kernel does not: the features of a network that distinguishes two digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ntkit.features import agop, nfa, nfm
from ntkit.plots import figure_matrices

from ._digits_pair import Pair
from ._networks import dense_network
from .plots import Picture, Table

__all__ = ["VARIANCES", "FeaturesFound", "features_of", "features_picture", "features_table"]

VARIANCES = (1.0, 0.01)
"""Initial variances of the first layer times the number of inputs: large weights hardly move, small ones learn features."""

_WIDTH, _RATE, _STEPS = 64, 0.05, 400
_FIRST = "0"


@dataclass(frozen=True)
class FeaturesFound:
    """The first layer of a trained network.

    Attributes
    ----------
    before, after
        Cosine of its feature matrix F = W^T W and the average gradient outer product G, before and after training.
    movement
        |W - W_0| / |W|.
    loss
        Mean squared error on the training images after training.
    weights, gradients
        The diagonals of F and G after training: one number per pixel, shape (64,).
    """

    before: float
    after: float
    movement: float
    loss: float
    weights: tuple[float, ...]
    gradients: tuple[float, ...]


def features_of(pair: Pair, variance: float, seed: int) -> FeaturesFound:
    """Train a network whose first layer starts with the given variance, and measure its features."""
    net = dense_network(64, _WIDTH, 2)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for number, weight in enumerate(net.parameters()):
            scale = variance if number == 0 else 1.0
            weight.copy_(torch.randn(weight.shape, generator=generator) * (scale / weight.shape[1]) ** 0.5)
    x, y = pair.x.float(), pair.y.float()[:, None]
    before = nfa(net, x)[_FIRST].uncentred
    start = {name: value.clone() for name, value in net.state_dict().items()}
    optimizer = torch.optim.SGD(net.parameters(), lr=_RATE)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    measured = nfa(net, x, initial=start)[_FIRST]
    with torch.no_grad():
        loss = float(nn.functional.mse_loss(net(x), y))
    return FeaturesFound(
        before=before,
        after=measured.uncentred,
        movement=measured.movement,
        loss=loss,
        weights=tuple(nfm(net)[_FIRST].diagonal().tolist()),
        gradients=tuple(agop(net, x)[_FIRST].diagonal().tolist()),
    )


def features_table(found: Mapping[float, FeaturesFound]) -> Table:
    """Return the correlations by variance of the first layer at the start."""
    rows = [
        [f"{variance:g}", f"{one.before:.2f}", f"{one.after:.2f}", f"{one.movement:.2f}", f"{one.loss:.3f}"]
        for variance, one in found.items()
    ]
    caption = (
        "Neural feature ansatz (Radhakrishnan et al. 2022; Beaglehole et al. 2024) at the first layer of networks of width "
        f"{_WIDTH}: cosine of F = WᵀW with the average gradient outer product G of the network. Weights that start small move "
        "far and align with what the network is sensitive to; a kernel, whose network does not move, has no such features"
    )
    header = ["variance at the start", "cosine before training", "after", "share of W that moved", "training loss"]
    return Table(header, rows, caption)


def features_picture(found: Mapping[float, FeaturesFound]) -> Picture:
    """Show the diagonals of both matrices as images of pixels."""
    matrices = {}
    for variance, one in found.items():
        matrices[f"F, variance {variance:g}"] = np.diag(one.weights)
        matrices[f"G, variance {variance:g}"] = np.diag(one.gradients)
    return Picture(
        figure_matrices(matrices, image_shape=(1, 8, 8)),
        "Which pixels the first layer weighs (diagonal of F) and which the output depends on (diagonal of G), after training.",
        "Four 8x8 images: with a small start both show the same few bright pixels, with a large start F is nearly noise.",
    )
