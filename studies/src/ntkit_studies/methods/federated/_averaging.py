"""Federated averaging: local gradient descent, then the mean of the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit.extending import LossFunction, Progress, check_integer, check_number, copy_module, find_loss

from .._classes import check_module
from ._places import Places
from ._worker import Worker

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["FederatedAveraging"]


class FederatedAveraging:
    r"""Train a network by averaging the weights that workers train (FedAvg, McMahan et al. 2017).

    In every round each worker trains the current weights on its own data for some epochs; the server takes the mean of the
    results, weighted by the numbers of points: :math:`\theta \leftarrow \sum_w \frac{n_w}{n} \theta_w`.

    Parameters
    ----------
    module
        The module, which is copied; ``module`` of this object holds the current weights. Buffers, such as running means, are
        averaged too.
    workers : sequence of Worker
        The workers with their data.
    loss : str or callable
        As in :class:`ntkit.GradientFlow`; steps use its mean over a batch. Default ``"cross_entropy"``.
    learning_rate : float
        Learning rate of plain stochastic gradient descent. Default 0.1.
    epochs : int
        Epochs of local training per round. Default 1.
    batch_size : int
        Batch size of local training. Default 32.
    client : distributed.Client, optional
        Workers on a Dask cluster. Default None: in this process.
    seed : int
        Seed of the order of batches. Default 0.

    See Also
    --------
    FederatedNTK : few rounds, however the data are distributed.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit_studies.methods import FederatedAveraging, Worker
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(40, 4)
    >>> y = (x[:, 0] > 0).long()
    >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    >>> federated = FederatedAveraging(net, [Worker(x[:20], y[:20]), Worker(x[20:], y[20:])], learning_rate=0.5, epochs=5)
    >>> module = federated.fit(10)
    >>> float((module(x).argmax(1) == y).float().mean()) > 0.9
    True
    """

    def __init__(
        self,
        module: nn.Module,
        workers: Sequence[Worker],
        *,
        loss: str | LossFunction = "cross_entropy",
        learning_rate: float = 0.1,
        epochs: int = 1,
        batch_size: int = 32,
        client: Client | None = None,
        seed: int = 0,
    ) -> None:
        check_module(module)
        for name, value in (("epochs", epochs), ("batch_size", batch_size)):
            check_integer(name, value, 1)
        check_number("learning_rate", learning_rate, positive=True)
        self.module = copy_module(module)
        self.loss = find_loss(loss)
        self.learning_rate, self.epochs, self.batch_size, self.seed = learning_rate, epochs, batch_size, seed
        self.places = Places(workers, client)
        self.done = 0

    def fit(self, rounds: int, progress: Progress | None = None) -> nn.Module:
        """Run rounds and return the module; ``progress`` is called with the number of rounds done and their total."""
        for number in range(rounds):
            self.round()
            if progress is not None:
                progress(number + 1, rounds)
        return self.module

    def round(self) -> None:
        """Run one round; if it fails, the weights stay as before."""
        seeds = [1_000_003 * self.seed + 1009 * self.done + index for index in range(len(self.places.sizes))]
        states = self.places.each(
            "trained", self.module, self.loss, self.learning_rate, self.epochs, self.batch_size,
            own=seeds, what=f"in round {self.done + 1}",
        )  # fmt: skip
        total = sum(self.places.sizes)
        averaged: dict[str, Tensor] = {}
        for name, first in states[0].items():
            if first.is_floating_point():
                parts = [(n / total) * state[name] for n, state in zip(self.places.sizes, states, strict=True)]
                averaged[name] = torch.stack(parts).sum(0)
            else:
                averaged[name] = first
        if not all(bool(torch.isfinite(value).all()) for value in averaged.values() if value.is_floating_point()):
            raise InputError(
                f"the weights are not finite after round {self.done + 1}: a smaller learning_rate than {self.learning_rate:g} is "
                "needed. The weights of the round before are kept."
            )
        self.module.load_state_dict(averaged)
        self.done += 1
