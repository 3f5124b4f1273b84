from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ntkit.errors import InputError
from ntkit_studies.methods import FederatedAveraging, Worker


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(12, 4, dtype=torch.float64, generator=generator)
    return x, x[:, :3].argmax(1)


def test_one_step_of_whole_batches_is_gradient_descent_on_all_data():
    x, y = data()
    federated = FederatedAveraging(
        network(), [Worker(x[:3], y[:3]), Worker(x[3:], y[3:])], learning_rate=0.5, batch_size=100
    )
    net = network()
    for _ in range(3):
        federated.round()
        loss = F.cross_entropy(net(x), y)
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(net.parameters(), gradients, strict=True):
                parameter -= 0.5 * gradient
    for mine, theirs in zip(federated.module.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_seed_gives_the_same_weights_and_batches_matter():
    x, y = data()
    workers = [Worker(x[:6], y[:6]), Worker(x[6:], y[6:])]

    def reached(seed: int) -> torch.Tensor:
        return FederatedAveraging(network(), workers, batch_size=2, seed=seed).fit(2)[0].weight

    assert torch.equal(reached(0), reached(0)) and not torch.equal(reached(0), reached(1))


def test_bad_input():
    x, y = data()
    for options, message in (
        ({"epochs": 0}, "epochs"),
        ({"batch_size": 0}, "batch_size"),
        ({"learning_rate": 0}, "lear"),
    ):
        with pytest.raises(InputError, match=message):
            FederatedAveraging(network(), [Worker(x, y)], **options)
    with pytest.raises(InputError, match="not finite after round 1"):
        FederatedAveraging(network(), [Worker(x, x[:, :3])], loss="mse", learning_rate=1e200, epochs=5).round()
