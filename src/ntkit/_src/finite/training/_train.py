"""Training for theory: plain methods on whole parameter vectors, recorded, and resumable to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from ntkit._src.common import LossFunction, Progress, check_module, check_number, unchanged
from ntkit._src.kernels import Network
from ntkit.errors import InputTypeError

from ._divergence import has_diverged, warn_diverged
from ._record import Checkpoint, Record, TrainState, Trajectory
from ._schedule import Schedule
from ._steps import discrete_step, runge_kutta_step
from ._trained_function import TrainedFunction

_FLOW_UNITS = 1000  # of progress that the time of a flow counts


def train(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    schedule: Schedule,
    *,
    loss: Literal["mse", "cross_entropy", "binary_cross_entropy"] | LossFunction = "mse",
    kappa: float = 1.0,
    centre: bool = False,
    stop_below: float | None = None,
    record: Record | Sequence[float] | None = None,
    progress: Progress | None = None,
    checkpoint: Checkpoint | Callable[[TrainState], None] | None = None,
    resume: TrainState | None = None,
) -> Trajectory:
    r"""Train a module as the theory of wide networks does, and record the quantities of that theory.

    The function trained is :math:`u(x) = \kappa (f(x; \theta) - f(x; \theta_0))`, the second term only if centred, on
    :math:`L = \sum_i \ell(u(x_i), y_i)`: a **sum** over the training points, not a mean, with :math:`\ell = \frac12 |u - y|^2`
    for squared error. Gradient flow :math:`\theta' = -\nabla L` then gives
    :math:`u' = -\kappa^2 \Theta\, \partial L / \partial u` with the empirical tangent kernel :math:`\Theta` of the module, and
    a step of gradient descent of size :math:`\eta` is a time :math:`\eta` of it: a record's time is the learning rate times
    its steps (Arora et al. 2019, section 3; Golikov et al. 2022, section 2). Steps are stable below
    :math:`2 / (\kappa^2 \lambda_{max}(\Theta))`. A learning rate for a mean over n points is n times larger.

    Parameters
    ----------
    module : nn.Module
        The module, trained in place; in evaluation mode if it has dropout or batch norms. Only its trained parameters change:
        frozen ones, buffers, modes and ``.grad`` stay as they are.
    x : Tensor of shape (n, ...)
        Training inputs.
    y : Tensor of shape (n, ...)
        Targets, in the shape of the outputs; for ``"cross_entropy"`` classes, int64 of shape (n,), or probabilities.
    schedule : Schedule
        The method, its step size and duration, such as ``Schedule(learning_rate=0.1, steps=100)`` or
        ``Schedule("flow", time=10.0)``. No default.
    loss : {"mse", "cross_entropy", "binary_cross_entropy"} or callable
        Cross-entropies take logits. A function takes outputs and targets and returns the sum over the rows. Default ``"mse"``.
    kappa : float
        The output multiplier. Default 1.
    centre : bool
        Whether to subtract the function at the start. Default False.
    stop_below : float, optional
        Stop once L is smaller. Default None: train to the end of the schedule.
    record : Record or sequence of float, optional
        The steps (times, for the flow) to record, or a :class:`ntkit.Record`, which also holds test points and functions to
        observe. Default: the start and the end.
    progress : callable, optional
        Called after each step with the number of steps done and the total; for the flow, with thousandths of its time.
        Default None.
    checkpoint : Checkpoint or callable, optional
        A function of the state, called every 100 steps; :class:`ntkit.Checkpoint` sets another interval. Default None.
    resume : TrainState, optional
        A state to resume from, of a run with the same arguments; the schedule may be longer. The result has the same bits as
        that of an uninterrupted run, and all its records; for the flow, whose steps end at records, this holds if the state
        is of a recorded time or was saved by ``checkpoint``. Default None: start from the module's parameters.

    Returns
    -------
    Trajectory

    Warns
    -----
    DivergenceWarning
        If the loss grows without bound: training stops, and the warning names the learning rate that is stable at the
        start.

    Raises
    ------
    InputError, InputTypeError
        For incompatible arguments, and wrong shapes or values.

    See Also
    --------
    ntkit.GradientFlow : the same training of a network with a constant kernel.
    ntkit.max_learning_rate : the largest stable learning rate of a kernel.
    ntkit.diagnostics.KernelRecorder : the kernel along such a run.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)))
    >>> net = ntkit.initialize(net, generator=torch.Generator().manual_seed(0))
    >>> x, y = torch.eye(2), torch.tensor([[1.0], [-1.0]])
    >>> run = ntkit.train(net, x, y, ntkit.Schedule("flow", time=20.0), record=[1.0], centre=True)
    >>> run.times, bool(run.losses[-1] < 1e-6)
    (tensor([ 0.,  1., 20.], dtype=torch.float64), True)
    """
    recorded = record if isinstance(record, Record) else Record(() if record is None else record)
    saved = checkpoint if checkpoint is None or isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint)
    if not isinstance(schedule, Schedule):
        raise InputTypeError(
            f"schedule must be an ntkit.Schedule. Got {type(schedule).__name__}: write "
            'Schedule(learning_rate=0.1, steps=100) or Schedule("flow", time=10.0).'
        )
    check_module(module)
    for inputs in (x, recorded.x_test):
        if inputs is not None or inputs is x:
            Network(module, "full").check(inputs, None, trained=True)
    kappa = check_number("kappa", kappa, 0.0, positive=True)
    limit = None if stop_below is None else check_number("stop_below", stop_below, float("-inf"))
    function = TrainedFunction(module, x, y, schedule, loss, recorded, kappa, bool(centre), resume)
    run = _Run(function, function.start(resume), limit, progress, saved)
    with unchanged(module):
        status = run.flow() if schedule.is_flow else run.descend()
    function.write_back(run.state.theta)
    return function.trajectory(run.state, status, run.diverged)


class _Run:
    """A training run: its state, and what to do after each step."""

    def __init__(
        self,
        function: TrainedFunction,
        state: TrainState,
        stop_below: float | None,
        progress: Progress | None,
        checkpoint: Checkpoint | None,
    ) -> None:
        self.function, self.state, self.stop_below = function, state, stop_below
        self.progress, self.checkpoint = progress, checkpoint
        self.diverged = False

    def descend(self) -> str:
        """Take the steps of every method except the flow, and return the status."""
        function, schedule = self.function, self.function.schedule
        end, rate = int(schedule.end), schedule.learning_rate
        assert rate is not None
        while True:
            state, gradient = self.state, None
            if schedule.method != "sgd" or function.records(state.step) or self.stop_below is not None:
                value, gradient, outputs = function.loss_and_gradient(state.theta)
                if self._ends(value, outputs, state.step):
                    return self._why(value)
            if state.step >= end:
                return f"All {end} steps were taken."
            memory = dict(state.memory)
            if schedule.method == "sgd":
                rows, memory = function.next_rows(memory)
                value, gradient, _ = function.loss_and_gradient(state.theta, rows)
                if self._grew(value):
                    value, _, outputs = function.loss_and_gradient(state.theta)
                    if self._ends(value, outputs, state.step):
                        return self._why(value)
            assert gradient is not None
            theta, memory = discrete_step(
                schedule.method, state.theta, gradient, rate, schedule.momentum or 0.0, memory
            )
            seed = schedule.generator.get_state() if schedule.generator is not None else None
            step = state.step + 1
            self.state = replace(state, step=step, time=rate * step, theta=theta, memory=memory, generator=seed)
            self._report(step)

    def flow(self) -> str:
        """Integrate the gradient flow, and return the status."""
        function, schedule = self.function, self.function.schedule

        def slope(theta: Tensor) -> Tensor:
            return -function.loss_and_gradient(theta)[1]

        while True:
            state = self.state
            value, gradient, outputs = function.loss_and_gradient(state.theta)
            if self._ends(value, outputs, state.time):
                return self._why(value)
            if state.time >= schedule.end:
                return f"The flow ran for a time of {schedule.end:g}."
            left = function.next_record(state.time) - state.time
            h = float(state.memory["h"]) if "h" in state.memory else _first_step(state.theta, gradient, left)
            theta, taken, h = runge_kutta_step(
                slope, state.theta, -gradient, state.theta0, h, left, schedule.rtol, schedule.atol
            )
            reached = function.next_record(state.time) if taken >= left else state.time + taken
            memory = {"h": torch.tensor(h, dtype=torch.float64)}
            self.state = replace(state, step=state.step + 1, time=reached, theta=theta, memory=memory)
            self._report(reached)

    def _ends(self, value: Tensor, outputs: Tensor, when: float) -> bool:
        """Record the moment if it is due, and return why training ends early, if it does."""
        self.diverged = self._grew(value)
        below = self.stop_below is not None and float(value) < self.stop_below
        if self.function.records(when) or below or self.diverged:
            self.function.remember(self.state, value, outputs)
        return below or self.diverged

    def _grew(self, value: Tensor) -> bool:
        losses = self.state.records.get("losses", [value])
        return has_diverged(float(value), float(losses[0]), len(self.function.x))

    def _why(self, value: Tensor) -> str:
        if not self.diverged:
            return f"L fell below {self.stop_below}."
        first = float(self.state.records["losses"][0])
        return warn_diverged(self.function, self.state.step, first, float(value))

    def _report(self, done: float) -> None:
        state, schedule = self.state, self.function.schedule
        if self.progress is not None:
            units = _FLOW_UNITS / schedule.end if schedule.is_flow else 1
            self.progress(round(units * done), round(units * schedule.end))
        if self.checkpoint is not None and state.step % self.checkpoint.every == 0:
            self.checkpoint.save(replace(state, records={name: list(values) for name, values in state.records.items()}))


def _first_step(theta: Tensor, gradient: Tensor, limit: float) -> float:
    """Return a step in which the parameters move by a thousandth of their norm; the error control does the rest."""
    speed = float(torch.linalg.vector_norm(gradient))
    return min(limit, 1e-3 * (float(torch.linalg.vector_norm(theta)) or 1.0) / speed) if speed > 0 else limit
