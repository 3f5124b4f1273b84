"""What to record of a training run, and how often to save its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ntkit._src.common import check_integer, check_number
from ntkit.errors import InputError, InputTypeError

from ._schedule import Schedule
from ._trajectory import TrainState

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
