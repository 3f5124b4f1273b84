"""The result of training: records along the way, and the state from which it can be resumed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ntkit.errors import InputError


@dataclass(frozen=True)
class TrainState:
    """The state of training: everything that resuming needs, and the records so far.

    Attributes
    ----------
    settings
        The settings that must stay the same when training is resumed.
    step
        Steps taken.
    time
        Training time so far.
    theta, theta0
        The trained parameters now and at the start, one vector each, shape (p,).
    memory
        The memory of the method: momentum, Adam's moments, the next step size, the order of the minibatches.
    generator
        State of the generator of the minibatches.
    records
        The values recorded so far, by name.

    See Also
    --------
    ntkit.train : ``resume=state`` continues the run.
    """

    settings: dict[str, Any]
    step: int
    time: float
    theta: Tensor
    theta0: Tensor
    memory: dict[str, Tensor] = field(default_factory=dict)
    generator: Tensor | None = None
    records: dict[str, list[Tensor]] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the state to a file of plain tensors and numbers."""
        torch.save({entry.name: getattr(self, entry.name) for entry in fields(self)}, path)

    @classmethod
    def load(cls, path: str | Path) -> TrainState:
        """Read a state that :meth:`save` wrote."""
        content = torch.load(path, weights_only=True)
        if not isinstance(content, dict) or set(content) != {entry.name for entry in fields(cls)}:
            raise InputError(f"{path} must be a file written by TrainState.save. Got something else.")
        return cls(**content)


@dataclass(frozen=True)
class Trajectory:
    """A training run at m recorded moments.

    Attributes
    ----------
    steps
        Steps taken until each record, shape (m,), int64.
    times
        Training time of each record, shape (m,), float64: learning rate times steps, or the time of the flow, of the summed
        loss.
    losses
        L, the sum over the training points, shape (m,), float64.
    predictions
        kappa (f - f_0, if centred) of the training points, shape (m, n, ...).
    test_predictions
        The same for the test points, shape (m, n_test, ...); None without test points.
    movement
        The norm of theta - theta_0 over that of theta_0, shape (m,), float64.
    layer_movement
        The same for each trained parameter by name; infinite for one that started at zero and moved.
    observations
        Observations by name, such as kernels, shape (number of observations, ...).
    observed
        Indices of the records at which it was observed.
    status
        Why training ended, in a sentence.
    diverged
        Whether training was stopped because the loss grew without bound.
    state
        The state to resume from: ``train(..., resume=state)``.

    See Also
    --------
    ntkit.train : returns one.
    """

    steps: Tensor
    times: Tensor
    losses: Tensor
    predictions: Tensor
    test_predictions: Tensor | None
    movement: Tensor
    layer_movement: dict[str, Tensor]
    observations: dict[str, Tensor]
    observed: tuple[int, ...]
    status: str
    diverged: bool
    state: TrainState

    def __repr__(self) -> str:
        return (
            f"Trajectory({len(self.steps)} records, {int(self.state.step)} steps, time {self.state.time:.6g}, "
            f"loss {float(self.losses[0]):.3g} -> {float(self.losses[-1]):.3g}: {self.status})"
        )
