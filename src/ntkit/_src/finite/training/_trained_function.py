"""The trained function of one parameter vector, and what is recorded of it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ntkit._src.common import LossFunction, find_loss, measuring, read_output_targets
from ntkit.errors import InputError

from ._record import Record, TrainState, Trajectory
from ._schedule import Schedule
from ._steps import Memory


class TrainedFunction:
    r"""The trained function :math:`u = \kappa (f_\theta - f_{\theta_0})` of one parameter vector; see :func:`ntkit.train`."""

    def __init__(
        self,
        module: nn.Module,
        x: Tensor,
        y: Tensor,
        schedule: Schedule,
        loss: str | LossFunction,
        record: Record,
        kappa: float,
        centre: bool,
        resume: TrainState | None,
    ) -> None:
        self.module, self.x, self.schedule, self.record = module, x, schedule, record
        self.kappa, self.centre, self.x_test = kappa, centre, record.x_test
        self.moments = record.moments(schedule)
        self.parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
        kinds = {(p.dtype, p.device) for p in self.parameters.values()}
        if len(kinds) > 1:
            raise InputError(
                f"the trained parameters must have the same dtype and device. Got {sorted(map(str, kinds))}."
            )
        self.sizes = [p.numel() for p in self.parameters.values()]
        self.theta0 = self.read() if resume is None else resume.theta0
        if len(self.theta0) != sum(self.sizes):
            raise InputError(
                f"resume must be a state of this module. Got one of {len(self.theta0)} parameters for {sum(self.sizes)}."
            )
        with torch.no_grad(), measuring(module):
            self.f0 = self._raw(self.theta0, x) if centre else None
            self.f0_test = self._raw(self.theta0, self.x_test) if centre and self.x_test is not None else None
            outputs = self.outputs(self.theta0)
        self.loss = find_loss(loss)
        self.y = read_output_targets(self.loss, y, outputs)
        self.value(outputs, self.y)

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return L of outputs and targets, a scalar."""
        value = self.loss.value(outputs, targets)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise InputError("loss must return one number: the sum of the losses of the rows. Got something else.")
        return value.reshape(())

    def records(self, when: float) -> bool:
        """Return whether a moment is recorded."""
        return when in self.moments or when == self.schedule.end

    def next_record(self, when: float) -> float:
        """Return the next moment at which the flow must stop."""
        later = bisect_right(self.moments, when)
        return min(self.schedule.end, self.moments[later]) if later < len(self.moments) else self.schedule.end

    def next_rows(self, memory: Memory) -> tuple[Tensor, Memory]:
        """Return the rows of the next minibatch; a new order of all rows is drawn at the start of every epoch."""
        order, position = memory.get("order"), int(memory.get("position", 0))
        if order is None or position >= len(self.x):
            order, position = torch.randperm(len(self.x), generator=self.schedule.generator), 0
        rows = order[position : position + (self.schedule.batch_size or len(self.x))]
        return rows, {**memory, "order": order, "position": torch.tensor(position + len(rows))}

    def read(self) -> Tensor:
        """Return the module's parameters as one vector."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters.values()])

    def write_back(self, theta: Tensor) -> None:
        """Set the module's parameters from a vector."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters.values(), theta.split(self.sizes), strict=True):
                parameter.copy_(value.view_as(parameter))

    def _raw(self, theta: Tensor, x: Tensor) -> Tensor:
        pieces = zip(self.parameters.items(), theta.split(self.sizes), strict=True)
        values: Tensor = functional_call(self.module, {name: v.view_as(p) for (name, p), v in pieces}, (x,))
        return values

    def outputs(self, theta: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return u of the training points, or of some rows of them."""
        f = self._raw(theta, self.x if rows is None else self.x[rows])
        f0 = self.f0 if self.f0 is None or rows is None else self.f0[rows]
        return self.kappa * (f if f0 is None else f - f0)

    def loss_and_gradient(self, theta: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return L, its gradient, and the outputs; for some rows, L is that of the rows, scaled to all."""
        theta, rows = theta.detach().requires_grad_(), None if rows is None else rows.to(self.x.device)
        with torch.enable_grad():
            outputs = self.outputs(theta, rows)
            value = self.value(outputs, self.y if rows is None else self.y[rows])
            value = value if rows is None else value * (len(self.x) / len(rows))
            (gradient,) = torch.autograd.grad(value, theta)
        return value.detach(), gradient, outputs.detach()

    def start(self, resume: TrainState | None) -> TrainState:
        """Return the initial state."""
        settings: dict[str, Any] = {
            **self.schedule.shared(),
            "kappa": self.kappa,
            "centre": self.centre,
            "n": len(self.x),
        }
        generator = self.schedule.generator
        if resume is None:
            seed = generator.get_state() if generator is not None else None
            return TrainState(settings, 0, 0.0, self.theta0, self.theta0, {}, seed, {})
        if resume.settings != settings:
            changed = sorted(k for k in settings if settings[k] != resume.settings.get(k))
            raise InputError(
                f"resume must be a state of a run with the same arguments. Got other {', '.join(changed)}."
            )
        if generator is not None and resume.generator is not None:
            generator.set_state(resume.generator)
        flow = self.schedule.is_flow
        if (resume.time if flow else resume.step) > self.schedule.end:
            raise InputError(
                "resume must be a state from before the end: steps or time is smaller than what it has done."
            )
        records = {name: list(values) for name, values in resume.records.items()}
        if int(records["steps"][-1]) == resume.step and not self.records(resume.time if flow else resume.step):
            _forget_last(records)  # the interrupted run recorded its end
        return replace(resume, records=records)

    def remember(self, state: TrainState, value: Tensor, outputs: Tensor) -> None:
        """Record the state, unless a resumed run already has that record."""
        records = state.records
        if records.get("steps") and int(records["steps"][-1]) == state.step:
            return
        offset = (state.theta - state.theta0).split(self.sizes)
        entry = {
            "steps": torch.tensor(state.step),
            "times": torch.tensor(state.time, dtype=torch.float64),
            "losses": value.double().cpu(),
            "predictions": outputs,
            "movement": _ratio(state.theta - state.theta0, state.theta0),
        }
        for name, change, old in zip(self.parameters, offset, state.theta0.split(self.sizes), strict=True):
            entry[f"movement/{name}"] = _ratio(change, old)
        if self.x_test is not None:
            with torch.no_grad():
                f = self._raw(state.theta, self.x_test)
            entry["test_predictions"] = self.kappa * (f if self.f0_test is None else f - self.f0_test)
        observe = self.record.observe
        if observe and self.record.observes(state.time if self.schedule.is_flow else state.step):
            self.write_back(state.theta)
            entry["observed"] = torch.tensor(len(records.get("steps", [])))
            entry.update({f"observation/{name}": function(self.module).detach() for name, function in observe.items()})
        for name, recorded in entry.items():
            records.setdefault(name, []).append(recorded)

    def trajectory(self, state: TrainState, status: str, diverged: bool) -> Trajectory:
        """Return the records as a trajectory."""
        stacked = {name: torch.stack(values) for name, values in state.records.items()}
        return Trajectory(
            stacked["steps"],
            stacked["times"],
            stacked["losses"],
            stacked["predictions"],
            stacked.get("test_predictions"),
            stacked["movement"],
            _under("movement/", stacked),
            _under("observation/", stacked),
            tuple(int(index) for index in stacked.get("observed", torch.zeros(0))),
            status,
            diverged,
            state,
        )


def _ratio(change: Tensor, old: Tensor) -> Tensor:
    top, bottom = (torch.linalg.vector_norm(v).double().cpu() for v in (change, old))
    return torch.where(top == 0, torch.zeros_like(top), top / bottom)


def _under(prefix: str, stacked: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in stacked.items() if name.startswith(prefix)}


def _forget_last(records: dict[str, list[Tensor]]) -> None:
    last = len(records["steps"]) - 1
    observed = bool(records.get("observed")) and int(records["observed"][-1]) == last
    for name, values in records.items():
        if observed or not (name == "observed" or name.startswith("observation/")):
            values.pop()
