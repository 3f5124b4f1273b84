"""Two digits, wide networks in training, and what their infinite limit says about them: kernel, band, dynamics, elasticity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import (
    GradientFlow,
    LabelAware,
    Record,
    Schedule,
    empirical,
    infinite_width,
    initialize,
    local_elasticity,
    parametrize_ntk,
    posterior,
    train,
)
from ntkit.datasets import Digits, balanced_split
from ntkit.results import InfiniteWidth

from ._networks import dense_network

__all__ = ["LimitFound", "NetworkFound", "Pair", "limit_of", "network_of", "pair_of"]

_SHARE = 0.25  # fraction of the largest stable learning rate: small steps follow the flow
_HIDDEN = 2

Row = tuple[float, ...]


@dataclass(frozen=True)
class Pair:
    """The task: distinguish two digits.

    Attributes
    ----------
    x, y
        Training images as vectors, shape (n, 64), float64, and labels -1 and +1, shape (n,).
    x_test, y_test
        The test images of the two digits.
    path
        Images on the straight line from a test image of the first digit to one of the second, shape (m, 64).
    limit
        Of the fully connected ReLU network with two hidden layers.
    rate
        Learning rate of the finite networks.
    steps
        Steps at which they are compared, increasing from 0.
    recorded
        Steps at which their loss is recorded.
    """

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    path: Tensor
    limit: InfiniteWidth
    rate: float
    steps: tuple[int, ...]
    recorded: tuple[int, ...]


@dataclass(frozen=True)
class LimitFound:
    """The predictions of the kernels, without training a network; s compared steps, m points of the path, r recorded steps.

    Attributes
    ----------
    times
        Of the compared steps, shape (s,).
    mean, std
        Of the ensemble of infinitely wide networks along the path, shape (s, m).
    loss_times, losses
        Of the recorded steps, and the expected training loss there, shape (r,).
    elasticity
        Relative ratio of the tangent kernel on the test images.
    label_aware_elasticity
        That of the label-aware kernel, whose labels are those of the training images.
    """

    times: Row
    mean: tuple[Row, ...]
    std: tuple[Row, ...]
    loss_times: Row
    losses: Row
    elasticity: float
    label_aware_elasticity: float


@dataclass(frozen=True)
class NetworkFound:
    """One finite network in training.

    Attributes
    ----------
    kernel_error
        Error of its initial tangent kernel on the training images, relative to the exact one (Frobenius norms).
    outputs
        Along the path at the compared steps, shape (s, m).
    losses
        Training loss at the recorded steps, shape (r,).
    elasticity, trained_elasticity
        Relative ratio of its tangent kernel on the test images, before and after training.
    """

    kernel_error: float
    outputs: tuple[Row, ...]
    losses: Row
    elasticity: float
    trained_elasticity: float


def pair_of(
    pool: Digits, test: Digits, classes: tuple[int, int], size: int, points: int, steps: tuple[int, ...], seed: int
) -> Pair:
    """Draw the images of the task and set the learning rate from the exact kernel."""
    parts = []
    for digits in (pool, test):
        rows = torch.nonzero((digits.labels[:, None] == torch.tensor(classes)).any(1)).squeeze(1)
        parts.append(digits.take(rows))
    own, others = parts
    chosen = own.take(balanced_split(own.labels, [size], seed)[0])
    x, x_test = (one.images.flatten(1) for one in (chosen, others))
    y, y_test = (torch.where(one.labels == classes[1], 1.0, -1.0).double() for one in (chosen, others))
    first, second = (x_test[y_test == sign][0] for sign in (-1, 1))
    share = torch.linspace(0, 1, points, dtype=torch.float64)[:, None]
    limit = infinite_width(dense_network(64, 8, _HIDDEN))
    rate = _SHARE * GradientFlow(limit.ntk).fit(x, y).max_learning_rate()
    last = steps[-1]
    recorded = tuple(sorted({round(step) for step in np.geomspace(1, last, 16)}))
    return Pair(x, y, x_test, y_test, (1 - share) * first + share * second, limit, rate, steps, recorded)


def limit_of(pair: Pair) -> LimitFound:
    """Evaluate the limit: posterior along the path, expected losses, elasticity."""
    found = [posterior(pair.limit, pair.x, pair.y, pair.path, t=pair.rate * step) for step in pair.steps]
    losses = []
    for step in pair.recorded:
        own = posterior(pair.limit, pair.x, pair.y, pair.x, t=pair.rate * step, covariance="diagonal")
        losses.append(float(((own.mean - pair.y) ** 2).sum() + own.variance.sum()) / 2)
    kernel = pair.limit.ntk
    aware = LabelAware(kernel, "kr-v1", 0.1).fit(pair.x, pair.y)
    return LimitFound(
        times=tuple(pair.rate * step for step in pair.steps),
        mean=tuple(tuple(one.mean.tolist()) for one in found),
        std=tuple(tuple(one.variance.clamp(min=0).sqrt().tolist()) for one in found),
        loss_times=tuple(pair.rate * step for step in pair.recorded),
        losses=tuple(losses),
        elasticity=float(local_elasticity(kernel(pair.x_test), pair.y_test)),
        label_aware_elasticity=float(local_elasticity(aware(pair.x_test), pair.y_test)),
    )


def network_of(pair: Pair, width: int, seed: int) -> NetworkFound:
    """Draw a network in the NTK parametrisation and train all its layers by gradient descent on the squared error."""
    net = dense_network(64, width, _HIDDEN)
    initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed))
    exact = pair.limit.ntk(pair.x)
    error = float((_kernel(net, pair.x) - exact).norm() / exact.norm())
    before = float(local_elasticity(_kernel(net, pair.x_test), pair.y_test))
    steps = sorted({*pair.steps, *pair.recorded} - {0})
    found = train(
        net,
        pair.x.float(),
        pair.y.float()[:, None],
        Schedule(learning_rate=pair.rate, steps=steps[-1]),
        record=Record(at=steps, x_test=pair.path.float()),
    )
    at = {round(float(time) / pair.rate): place for place, time in enumerate(found.times)}
    predictions = found.test_predictions
    assert isinstance(predictions, Tensor)
    return NetworkFound(
        kernel_error=error,
        outputs=tuple(tuple(predictions[at[step]].flatten().tolist()) for step in pair.steps),
        losses=tuple(float(found.losses[at[step]]) for step in pair.recorded),
        elasticity=before,
        trained_elasticity=float(local_elasticity(_kernel(net, pair.x_test), pair.y_test)),
    )


def _kernel(net: nn.Module, x: Tensor) -> Tensor:
    gram: Tensor = empirical(net).ntk(x.float())
    return gram.detach().double()
