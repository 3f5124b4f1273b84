"""Federated learning by integrating the tangent kernel of all workers' data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from ntkit import Descent, max_learning_rate
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import (
    LossFunction,
    Progress,
    check_choice,
    check_gram_memory,
    check_integer,
    copy_module,
    find_loss,
)

from .._classes import check_module
from .._integrate import Outputs, check_differentiable, integrated_residuals, move
from ._places import Places
from ._worker import Worker

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["FederatedNTK", "Round"]

Share = Literal["jacobian", "sketch", "gram"]


@dataclass(frozen=True)
class Round:
    """The record of one round.

    Attributes
    ----------
    number
        Number of the round, from 1 on.
    learning_rate
        Learning rate of the integrated descent.
    steps
        The chosen number of steps; 0 if no candidate lowered the training loss, so that the weights did not change.
    losses
        The training loss, summed over all points, by candidate number of steps; 0 is before the round.
    gram_error
        For a sketch, the estimated relative error of the kernel in the Frobenius norm; zero for exact kernels.
    numbers_sent
        Number of floating-point numbers that each worker sent.
    """

    number: int
    learning_rate: float
    steps: int
    losses: dict[int, float]
    gram_error: float
    numbers_sent: tuple[int, ...]


class FederatedNTK:
    r"""Train a network on the data of several workers, with many steps of gradient descent per round (Yue et al. 2021).

    In every round the workers send outputs, targets and derivatives at the current weights. The server assembles the tangent
    kernel of all data, integrates gradient descent with it for several numbers of steps
    (:math:`\theta_t = \theta_0 + \eta Z \sum_{s<t} (y - u_s)`, Golikov et al. 2022, eqs. 101-105), collects the workers'
    loss for each, and broadcasts the weights of the best. Averages of weights (FedAvg) suffer from workers whose data differ;
    here the result does not depend on how the data are distributed.

    Parameters
    ----------
    module
        The module, which is copied; ``module`` of this object holds the current weights.
    workers : sequence of Worker
        The workers with their data.
    loss : str or callable
        As in :class:`ntkit.GradientFlow`. Default ``"mse"``.
    share : {"jacobian", "sketch", "gram"}
        What the kernel is computed from. ``"jacobian"``: the derivatives themselves, parameter by parameter, exact. ``"sketch"``:
        random projections of them to ``sketch_size`` numbers per output, with an estimate of the error. ``"gram"``: pairs of
        workers compute their block of the kernel, exact and smallest, but one of them sees the other's inputs; refused unless
        ``allow_pairs``. Default ``"jacobian"``.
    outputs : {"coupled", "separate"}
        See :func:`ntkit_studies.methods.integrate`. Default ``"separate"``, as in Yue et al.
    learning_rate : float, optional
        Learning rate of the descent. At or above the largest stable one of a round it is an error, which states the bound.
        Default None: half of the bound.
    steps : sequence of int
        Candidate numbers of steps. Default 1 to 1000 in half decades.
    sketch_size : int
        Numbers per output of a sketch; must be even. Default 2048.
    allow_pairs : bool
        See ``share="gram"``. Default False.
    client : distributed.Client, optional
        Workers on a Dask cluster, which may copy the data of one to another of its processes. A process that dies with the only
        copy ends the round with a :class:`ntkit.errors.WorkerError`; the weights stay those before it. Default None: in this
        process.
    seed : int
        Seed of the sketches. Default 0.

    Notes
    -----
    What leaves a worker: outputs and targets (labels) of every point, in every round; its derivatives, or projections of them, or
    (``"gram"``) its inputs, to another worker; a vector of the size of the weights per candidate; its loss. **Unprojected
    derivatives reveal the inputs**: those of the weights of a first ``Linear`` layer are multiples of the input
    (:func:`recover_inputs` recovers it). Projections with a seed known to the server are no protection in
    the sense of differential privacy either.

    See Also
    --------
    TrainConvexifyTrain : averages weights first, then solves a linear problem.
    FederatedAveraging : the baseline.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit_studies.methods import FederatedNTK, Worker
    >>> _ = torch.manual_seed(0)
    >>> x = torch.randn(30, 4)
    >>> y = torch.tanh(x[:, :1] - x[:, 1:2])
    >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    >>> federated = FederatedNTK(net, [Worker(x[:10], y[:10]), Worker(x[10:], y[10:])])
    >>> rounds = federated.fit(3)
    >>> rounds[-1].losses[rounds[-1].steps] < 0.1 * rounds[0].losses[0]
    True
    """

    def __init__(
        self,
        module: nn.Module,
        workers: Sequence[Worker],
        *,
        loss: str | LossFunction = "mse",
        share: Share = "jacobian",
        outputs: Outputs = "separate",
        learning_rate: float | None = None,
        steps: Sequence[int] = (1, 3, 10, 30, 100, 300, 1000),
        sketch_size: int = 2048,
        allow_pairs: bool = False,
        client: Client | None = None,
        seed: int = 0,
    ) -> None:
        check_module(module)
        check_choice("share", share, ("jacobian", "sketch", "gram"))
        if share == "gram" and not allow_pairs:
            raise InputError(
                'share="gram" computes blocks of the kernel from the inputs of two workers, so one of them sees the inputs of '
                'the other. Write allow_pairs=True if that is acceptable, or share="sketch".'
            )
        check_choice("outputs", outputs, ("coupled", "separate"))
        if check_integer("sketch_size", sketch_size, 2) % 2:
            raise InputError(f"sketch_size must be even. Got {sketch_size}.")
        if learning_rate is not None:
            Descent(learning_rate)
        self.steps = sorted({check_integer("steps", one, 0) for one in steps} - {0})
        if not self.steps:
            raise InputError(f"steps must have a positive number. Got {list(steps)}.")
        self.module = copy_module(module)
        self.loss, self.share, self.outputs = find_loss(loss), share, outputs
        self.learning_rate, self.sketch_size, self.seed = learning_rate, sketch_size, seed
        self.places = Places(workers, client)
        for number, worker in enumerate(self.places.workers):
            try:
                check_differentiable(self.module, worker.x)
            except (InputError, InputTypeError) as error:
                raise type(error)(f"worker {number}: {error}") from error
        self.rounds: list[Round] = []

    def fit(self, rounds: int, progress: Progress | None = None) -> list[Round]:
        """Run rounds and return all of them so far; ``progress`` is called with the number of rounds done and their total."""
        check_integer("rounds", rounds, 1)
        for number in range(rounds):
            self.round()
            if progress is not None:
                progress(number + 1, rounds)
        return self.rounds

    def round(self) -> Round:
        """Run one round; if it fails, the weights stay as before."""
        what = f"in round {len(self.rounds) + 1}"
        module, places = self.module, self.places
        start = torch.cat(places.each("outputs", module, what=what))
        targets = torch.cat(places.each("targets", module, self.loss, what=what))
        gram, error, sent = self._gram(start, what)
        descent = self._descent(gram)
        weights, _, _ = integrated_residuals(gram, start.to(gram), targets.to(gram), self.steps, self.loss, descent)
        before = sum(places.each("loss", module, self.loss, what=what))
        losses, best = {0: before}, module
        for steps, one in zip(self.steps, weights, strict=True):
            candidate = copy_module(module)
            for change in places.each(
                "transposed_product", module, own=list(one.to(start).split(places.sizes)), what=what
            ):
                move(candidate, change)
            loss = sum(places.each("loss", candidate, self.loss, what=what))
            if math.isfinite(loss):
                if loss < min(losses.values()):
                    best = candidate
                losses[steps] = loss
        chosen = min(losses, key=lambda steps: losses[steps])
        size = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        shown = [2 * start[0].numel() * n + (size + 1) * len(self.steps) + 1 for n in places.sizes]
        found = Round(
            len(self.rounds) + 1,
            descent.learning_rate,
            chosen,
            losses,
            error,
            tuple(more + own for more, own in zip(shown, sent, strict=True)),
        )
        self.module = best
        self.rounds.append(found)
        return found

    def _descent(self, gram: Tensor) -> Descent:
        curvature = self.loss.curvature
        if curvature is None:
            if self.learning_rate is None:
                raise InputError(
                    f"the curvature of the loss {self.loss.name} is not known, so neither is a stable learning rate: pass one."
                )
            return Descent(self.learning_rate)
        bound = max_learning_rate(gram, curvature=curvature)
        if self.learning_rate is None:
            return Descent(bound / 2 if math.isfinite(bound) else 1.0)
        if self.learning_rate >= bound:
            raise InputError(
                f"learning_rate must be below {bound:.6g} in round {len(self.rounds) + 1}, beyond which descent diverges. Got "
                f"{self.learning_rate:g}. Leave it out for half of the bound."
            )
        return Descent(self.learning_rate)

    def _gram(self, start: Tensor, what: str) -> tuple[Tensor, float, list[int]]:
        """Return the kernel of all points in float64, its relative error, and how many numbers each worker sent for it."""
        k, sizes = start[0].numel(), self.places.sizes
        rows = start.numel() if self.outputs == "coupled" else len(start)
        check_gram_memory(rows, rows, torch.float64, start.device, matrices=4, what="the kernel of all workers' data")
        if self.share == "gram":
            return self._gram_of_pairs(rows, k, start, what)
        if self.share == "sketch":
            sketches = torch.cat(
                self.places.each("sketch", self.module, self.sketch_size, self.seed + len(self.rounds), what=what)
            )
            first, second = (self._product(2**0.5 * half) for half in sketches.chunk(2, dim=2))
            gram = (first + second) / 2
            error = float((first - second).norm() / (2 * gram.norm())) if float(gram.norm()) > 0 else 0.0
            return gram, error, [n * k * self.sketch_size for n in sizes]
        gram = torch.zeros(rows, rows, dtype=torch.float64, device=start.device)
        sent = [0] * len(sizes)
        for name, parameter in self.module.named_parameters():
            if parameter.requires_grad:
                gram += self._product(torch.cat(self.places.each("jacobian", self.module, name, what=what)))
                sent = [count + n * k * parameter.numel() for count, n in zip(sent, sizes, strict=True)]
        return gram, 0.0, sent

    def _product(self, rows: Tensor) -> Tensor:
        """Return the kernel of derivatives, shape (n, k, p), in float64."""
        if self.outputs == "coupled":
            flat = rows.flatten(0, 1)
            return (flat @ flat.T).double()
        flat = rows.flatten(1)
        return (flat @ flat.T).double() / rows.shape[1]

    def _gram_of_pairs(self, rows: int, k: int, start: Tensor, what: str) -> tuple[Tensor, float, list[int]]:
        per_point = k if self.outputs == "coupled" else 1
        ends = torch.tensor([0, *self.places.sizes]).cumsum(0).mul(per_point).tolist()
        gram = torch.zeros(rows, rows, dtype=torch.float64, device=start.device)
        sent = [0] * len(self.places.sizes)
        for i in range(len(sent)):
            for j in range(i, len(sent)):
                block = self.places.pair(i, j, "gram", self.module, self.outputs, what=what).double()
                gram[ends[i] : ends[i + 1], ends[j] : ends[j + 1]] = block
                gram[ends[j] : ends[j + 1], ends[i] : ends[i + 1]] = block.T
                sent[i] += block.numel()
                sent[j] += self.places.workers[j].x.numel() if j > i else 0  # its inputs, to worker i
        return gram, 0.0, sent
