"""The networks and the training of Beaglehole et al. 2024: no biases, W_ij ~ N(0, s / fan_in), full batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ntkit.features import Recorder

from .._seeded import seeded
from ..tasks import QuadraticTask, chain_monomial

__all__ = ["Split", "build_mlp", "draw_split", "layer_paths", "mean_squared_error", "train", "weight_at"]


@dataclass(frozen=True)
class Split:
    """Training and test points of a task, float32.

    Attributes
    ----------
    x, x_test
        Shape (n, d) and (n_test, d).
    y, y_test
        Shape (n, 1) and (n_test, 1).
    task
        Where they come from.
    """

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    task: QuadraticTask


def draw_split(n: int, d: int, r: int, seed: int, alpha: float | None = None, n_test: int = 1000) -> Split:
    """Draw training and test points of the chain monomial."""
    task = chain_monomial(n + n_test, d, r, torch.Generator().manual_seed(seed), alpha=alpha)
    train, test = task.split(n)
    return Split(train.x.float(), train.y.float()[:, None], test.x.float(), test.y.float()[:, None], task)


def build_mlp(
    widths: Sequence[int], scales: Sequence[float], seed: int, activation: Callable[[], nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Return a network without biases; widths from the inputs to the outputs, one scale s for each weight matrix."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    linear: list[nn.Linear] = []
    with seeded(0):  # torch draws weights of its own first
        for fan_in, fan_out in pairwise(widths):
            linear.append(nn.Linear(fan_in, fan_out, bias=False))
            layers += [linear[-1], activation()]
    with torch.no_grad():
        for layer, s in zip(linear, scales, strict=True):
            layer.weight.normal_(0, (s / layer.in_features) ** 0.5, generator=generator)
    return nn.Sequential(*layers[:-1])


def weight_at(net: nn.Sequential, path: str) -> Tensor:
    """Return the weight matrix at a path, shape (out, in)."""
    layer = net.get_submodule(path)
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach()


def layer_paths(net: nn.Sequential) -> list[str]:
    """Return the paths of the weight matrices, from the first layer to the readout."""
    return [str(index) for index in range(0, len(net), 2)]


def mean_squared_error(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the mean squared error, without gradients."""
    with torch.no_grad():
        return float((net(x) - y).square().mean())


def train(
    net: nn.Module,
    split: Split,
    steps: int,
    step: Callable[[], object],
    recorder: Recorder | None = None,
    half: bool = False,
) -> None:
    """Train on the mean squared error (or ``half`` of it) of all points; ``step`` moves the weights by their gradients."""
    for _ in range(steps):
        for parameter in net.parameters():
            parameter.grad = None
        loss = (net(split.x) - split.y).square().mean()
        (loss / 2 if half else loss).backward()
        step()
        if recorder is not None:
            recorder.step(
                train=lambda: mean_squared_error(net, split.x, split.y),
                test=lambda: mean_squared_error(net, split.x_test, split.y_test),
            )
