"""Local training by a worker of federated averaging."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntkit.extending import Loss, copy_module, read_output_targets

from ..._seeded import seeded

__all__ = ["local_training"]


def local_training(
    module: nn.Module, x: Tensor, y: Tensor, loss: Loss, learning_rate: float, epochs: int, batch_size: int, seed: int
) -> dict[str, Tensor]:
    """Return the state of a copy of the module after epochs of stochastic gradient descent on the mean loss of batches."""
    own = copy_module(module)
    own.train()
    optimizer = torch.optim.SGD([p for p in own.parameters() if p.requires_grad], lr=learning_rate)
    generator = torch.Generator().manual_seed(seed)
    with seeded(seed):  # from which dropout draws
        for _ in range(epochs):
            order = torch.randperm(len(x), generator=generator)
            for batch in order.split(batch_size):
                optimizer.zero_grad()
                outputs = own(x[batch])
                (loss.value(outputs, read_output_targets(loss, y[batch], outputs)) / len(batch)).backward()
                optimizer.step()
    return {name: value.detach().clone() for name, value in own.state_dict().items()}
