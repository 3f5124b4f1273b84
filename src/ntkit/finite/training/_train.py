"""Training for theory: plain methods on whole parameter vectors, recorded and resumable to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ntkit.common import check_module
from ntkit.errors import InputError
from ntkit.kernels import Network

from ._losses import Loss
from ._settings import Plan, make_plan
from ._steps import Method, discrete_step, runge_kutta_step
from ._trained_function import Observe, Trainee
from ._trajectory import TrainState, Trajectory

__all__ = ["train"]

Progress = Callable[[float, float], None]


def train(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    method: Method = "gd",
    loss: Loss = "mse",
    lr: float | None = None,
    steps: int | None = None,
    time: float | None = None,
    record: Sequence[float] | None = None,
    x_test: Tensor | None = None,
    kappa: float = 1.0,
    centre: bool = False,
    stop_below: float | None = None,
    momentum: float | None = None,
    batch_size: int | None = None,
    generator: torch.Generator | None = None,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    observe: Observe | None = None,
    observe_at: Sequence[float] | None = None,
    progress: Progress | None = None,
    checkpoint: Callable[[TrainState], None] | None = None,
    checkpoint_every: int = 100,
    resume: TrainState | None = None,
) -> Trajectory:
    r"""Train a module the way the theory of wide networks does, and record what it says something about.

    The function trained is :math:`u(x) = \kappa (f(x; \theta) - f(x; \theta_0))`, the second term only if centred, on
    :math:`L = \sum_i \ell(u(x_i), y_i)`: a **sum** over the training points, not a mean, with :math:`\ell = \frac12 |u - y|^2`
    for squared error. Gradient flow :math:`\theta' = -\nabla L` then gives
    :math:`u' = -\kappa^2 \Theta\, \partial L / \partial u` with the empirical tangent kernel :math:`\Theta` of the module, and
    a step of gradient descent of size ``lr`` is a time ``lr`` of it: a record's time is ``lr`` times its steps (Arora et al.
    2019, section 3; Golikov et al. 2022, section 2). Steps are stable below :math:`2 / (\kappa^2 \lambda_{max}(\Theta))`. A
    learning rate for a mean over n points is n times larger.

    Parameters
    ----------
    module
        Trained in place; evaluation mode if it has dropout or batch norms. Parameters with ``requires_grad=False`` stay.
    x, y
        Training inputs, shape (n, ...), and targets: the shape of the outputs; for ``"cross_entropy"`` classes, int64, or
        probabilities.
    method
        ``"gd"``; ``"momentum"``: heavy ball; ``"sgd"``: minibatches, every point once an epoch, gradients scaled by n / batch
        size; ``"adam"``; ``"flow"``: gradient flow by an embedded Runge-Kutta pair of orders 5 and 4 (Dormand and
        Prince 1980) with controlled error.
    loss
        ``"mse"``, ``"cross_entropy"``, ``"binary_cross_entropy"`` (both of logits), or a function of outputs and targets that
        gives the sum over rows.
    lr, steps
        Of every method but the flow.
    time
        How long the flow runs.
    record
        Steps (times, for the flow) to record, besides the start and the end. None: only those two.
    x_test
        More inputs to record predictions of.
    kappa, centre
        The output multiplier, and whether to subtract the function at the start.
    stop_below
        End once L is smaller.
    momentum, batch_size, generator
        Of ``"momentum"`` and ``"sgd"``. Minibatches need a generator, on the CPU.
    rtol, atol
        Of the flow: the norm of a step's error relative to the norm of theta - theta_0, and absolutely.
    observe, observe_at
        Functions of the module, by name, evaluated at the records ``observe_at`` (None: all), such as
        ``{"ntk": lambda net: ntkit.empirical(net).ntk(x)}``.
    progress
        Called after each step with the steps (time, for the flow) done and the steps there are.
    checkpoint, checkpoint_every
        Called with the state after every so many steps; write it with ``state.save(path)``.
    resume
        A state to go on from, of a run with the same arguments; ``steps`` or ``time`` may be larger. The result has the same
        bits as that of a run without interruption, and all its records; for the flow, whose steps end at records, if the state
        is of a recorded time or was saved by ``checkpoint``.

    Returns
    -------
    Trajectory

    Raises
    ------
    InputError
        Among others if L stops being finite: then ``lr`` was too large.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 1)))
    >>> net = ntkit.initialize(net, generator=torch.Generator().manual_seed(0))
    >>> x, y = torch.eye(2), torch.tensor([[1.0], [-1.0]])
    >>> run = ntkit.train(net, x, y, method="flow", time=20.0, record=[1.0], centre=True)
    >>> run.times, bool(run.losses[-1] < 1e-6)
    (tensor([ 0.,  1., 20.], dtype=torch.float64), True)
    """
    check_module(module)
    Network(module, "full").check(x, None, trained=True)
    if x_test is not None:
        Network(module, "full").check(x_test, None, trained=True)
    plan = make_plan(
        method, lr, steps, time, record, kappa, centre, stop_below, momentum, batch_size, generator, rtol, atol,
        observe_at, checkpoint_every, len(x),
    )  # fmt: skip
    trainee = Trainee(module, x, y, x_test, plan, loss, resume)
    state = trainee.start(resume)
    runner = _flow if method == "flow" else _descend
    state, status = runner(trainee, state, dict(observe or {}), progress, checkpoint)
    trainee.write_back(state.theta)
    return trainee.trajectory(state, status)


def _descend(
    trainee: Trainee,
    state: TrainState,
    observe: Observe,
    progress: Progress | None,
    checkpoint: Callable[[TrainState], None] | None,
) -> tuple[TrainState, str]:
    plan = trainee.plan
    end = int(plan.end)
    while True:
        recorded = plan.records(state.step)
        full = plan.method != "sgd" or recorded or plan.stop_below is not None
        gradient = None
        if full:
            value, gradient, outputs = trainee.loss_and_gradient(state.theta)
            _check_finite(value, state.step)
            below = plan.stop_below is not None and float(value) < plan.stop_below
            if recorded or below:
                trainee.remember(state, value, outputs, observe, state.step)
            if below:
                return state, f"L fell below {plan.stop_below}."
        if state.step >= end:
            return state, f"All {end} steps were taken."
        memory = dict(state.memory)
        if plan.method == "sgd":
            rows, memory = plan.next_rows(memory)
            gradient = trainee.batch_gradient(state.theta, rows)
        assert gradient is not None
        theta, memory = discrete_step(plan.method, state.theta, gradient, plan.lr, plan.momentum, memory)
        seed = plan.generator.get_state() if plan.generator is not None else None
        step = state.step + 1
        state = replace(state, step=step, time=plan.lr * step, theta=theta, memory=memory, generator=seed)
        _report(state, plan, step, end, progress, checkpoint)


def _flow(
    trainee: Trainee,
    state: TrainState,
    observe: Observe,
    progress: Progress | None,
    checkpoint: Callable[[TrainState], None] | None,
) -> tuple[TrainState, str]:
    plan = trainee.plan

    def slope(theta: Tensor) -> Tensor:
        return -trainee.loss_and_gradient(theta)[1]

    while True:
        value, gradient, outputs = trainee.loss_and_gradient(state.theta)
        _check_finite(value, state.step)
        below = plan.stop_below is not None and float(value) < plan.stop_below
        if plan.records(state.time) or below:
            trainee.remember(state, value, outputs, observe, state.time)
        if below:
            return state, f"L fell below {plan.stop_below}."
        if state.time >= plan.end:
            return state, f"The flow ran for a time of {plan.end:g}."
        target = plan.next_record(state.time)
        h = float(state.memory["h"]) if "h" in state.memory else _first_step(state.theta, gradient, target - state.time)
        theta, taken, h = runge_kutta_step(
            slope, state.theta, -gradient, state.theta0, h, target - state.time, plan.rtol, plan.atol
        )
        reached = target if taken >= target - state.time else state.time + taken
        memory = {"h": torch.tensor(h, dtype=torch.float64)}
        state = replace(state, step=state.step + 1, time=reached, theta=theta, memory=memory)
        _report(state, plan, state.time, plan.end, progress, checkpoint)


def _first_step(theta: Tensor, gradient: Tensor, limit: float) -> float:
    """Give a step on which the parameters move by a thousandth of their norm; the error control does the rest."""
    speed = float(torch.linalg.vector_norm(gradient))
    return min(limit, 1e-3 * (float(torch.linalg.vector_norm(theta)) or 1.0) / speed) if speed > 0 else limit


def _report(
    state: TrainState,
    plan: Plan,
    done: float,
    total: float,
    progress: Progress | None,
    checkpoint: Callable[[TrainState], None] | None,
) -> None:
    if progress is not None:
        progress(done, total)
    if checkpoint is not None and state.step % plan.checkpoint_every == 0:
        checkpoint(replace(state, records={name: list(values) for name, values in state.records.items()}))


def _check_finite(value: Tensor, step: int) -> None:
    if not bool(torch.isfinite(value)):
        raise InputError(
            f"L is {float(value)} after {step} steps: training diverged. Use a smaller lr; gradient descent on squared error is "
            "stable below 2 / (kappa^2 times the largest eigenvalue of the tangent kernel of the training points)."
        )
