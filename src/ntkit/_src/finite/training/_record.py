"""What to record of a training run, the records, and the state from which it is resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ntkit._src.common import check_integer, check_number
from ntkit.errors import InputError, InputTypeError

from ._schedule import Schedule


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


Observe = Mapping[str, Callable[[nn.Module], Tensor]]


@dataclass(frozen=True, eq=False)
class Record:
    """What :func:`ntkit.train` records: the start, the end, and moments between them.

    Attributes
    ----------
    at
        Steps (times, for the flow) to record in addition to the start and the end. Default: only those two.
    x_test
        Additional inputs whose predictions to record, shape (n_test, ...). Default None.
    observe
        Functions of the module, by name, such as ``{"ntk": lambda net: ntkit.empirical(net).ntk(x)}``. Default: none.
    observe_at
        The records at which they are evaluated, a subset of ``at``. Default None: all.

    See Also
    --------
    ntkit.train : takes a record.
    ntkit.results.Trajectory : the result.

    Examples
    --------
    >>> from ntkit import Record
    >>> Record(at=[1, 10, 100]).at
    [1, 10, 100]
    """

    at: Sequence[float] = ()
    x_test: Tensor | None = None
    observe: Observe | None = None
    observe_at: Sequence[float] | None = None

    def moments(self, schedule: Schedule) -> tuple[float, ...]:
        """Return the recorded moments in order, without the end, or raise an error if they do not fit the schedule."""
        moments = [0.0, *(check_number("record", moment, 0.0) for moment in self.at)]
        if not schedule.is_flow and any(moment != int(moment) for moment in moments):
            raise InputError(f"record must be whole numbers of steps. Got {list(self.at)}.")
        if max(moments) > schedule.end:
            raise InputError(f"record must lie between 0 and the end, {schedule.end:g}. Got {max(moments):g}.")
        observed = set(map(float, self.observe_at or ()))
        if not observed <= {*moments, schedule.end}:
            raise InputError(
                "observe_at must be moments that are recorded. "
                f"Got {sorted(observed - {*moments, schedule.end})} too. Add them to at."
            )
        return tuple(sorted(set(moments)))

    def observes(self, when: float) -> bool:
        """Whether the functions are evaluated at a recorded moment."""
        return self.observe_at is None or when in set(map(float, self.observe_at))


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A function that saves the state of a training run, and how often it is called.

    Attributes
    ----------
    save
        Called with the :class:`ntkit.TrainState`, such as ``lambda state: state.save(path)``.
    every
        Number of steps between calls. Default 100.

    See Also
    --------
    ntkit.train : takes a checkpoint, and resumes from a state.
    """

    save: Callable[[TrainState], None]
    every: int = 100

    def __post_init__(self) -> None:
        if not callable(self.save):
            raise InputTypeError(f"a checkpoint must be a function of the state. Got {type(self.save).__name__}.")
        check_integer("every", self.every, 1)
