from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError, NotFittedError
from ntkit_studies.methods import TrainConvexifyTrain, Worker
from ntkit_studies.methods.federated._coordinates import draw_coordinates


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()


def data(n: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator)
    return x, x[:, :3].argmax(1)


def jacobian(net: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Derivatives by backward passes, one per point and output: shape (n, k, *parameter) by parameter."""
    names, parameters = zip(*net.named_parameters(), strict=True)
    rows = [[torch.autograd.grad(value, parameters, retain_graph=True) for value in values] for values in net(x)]
    return {name: torch.stack([torch.stack([one[i] for one in row]) for row in rows]) for i, name in enumerate(names)}


def test_stage_two_is_ridge_regression_on_the_derivatives_named():
    x, y = data()
    tct = TrainConvexifyTrain(network(), [Worker(x[:7], y[:7]), Worker(x[7:], y[7:])], features=40, ridge=0.01).fit(2)
    blocks = jacobian(tct.module, x)
    phi = torch.stack([blocks[c.parameter].flatten(2)[:, c.output, c.index] for c in tct.coordinates_], 1)
    centred = phi - phi.mean(0)
    known = centred.std(0, correction=0) > 1e-9
    z = centred[:, known] / centred[:, known].std(0, correction=0)
    targets = F.one_hot(y, 3).double()
    gram = z.T @ z
    a = torch.linalg.solve(
        gram + 0.01 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64),
        z.T @ (targets - targets.mean(0)),
    )
    torch.testing.assert_close(tct.predict(x), z @ a + targets.mean(0), rtol=1e-7, atol=1e-8)
    alone = TrainConvexifyTrain(tct.module, [Worker(x, y)], features=40, ridge=0.01).fit(0)
    torch.testing.assert_close(alone.predict(x), tct.predict(x), rtol=1e-7, atol=1e-8)


def test_all_coordinates_are_the_tangent_kernel():
    x, y = data(10)
    net = network()
    total = 3 * sum(p.numel() for p in net.parameters())
    coordinates = draw_coordinates(net, 3, total, 0)
    assert len(set(coordinates)) == total
    features = Worker(x, y).tangent_features(net, coordinates)
    torch.testing.assert_close(features @ features.T / 3, ntkit.empirical(net).ntk(x))


def test_bad_input():
    x, y = data()
    with pytest.raises(InputError, match="features must be at least 1"):
        TrainConvexifyTrain(network(), [Worker(x, y)], features=0)
    with pytest.raises(InputError, match="at most 201"):
        TrainConvexifyTrain(network(), [Worker(x, y)], features=202).fit(0)
    with pytest.raises(NotFittedError, match="call fit"):
        TrainConvexifyTrain(network(), [Worker(x, y)]).predict(x)
