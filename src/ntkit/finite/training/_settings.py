"""The settings of a training run, checked."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError
from ntkit.finite._initialize import check_generator

from ._steps import Memory, Method

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, eq=False)
class Plan:
    """What :func:`ntkit.train` was asked for; ``end`` and ``recorded`` in steps, or in time for the flow."""

    method: Method
    lr: float
    end: float
    recorded: tuple[float, ...]
    kappa: float
    centre: bool
    stop_below: float | None
    momentum: float
    batch_size: int
    generator: torch.Generator | None
    rtol: float
    atol: float
    observe_at: frozenset[float] | None
    checkpoint_every: int
    n: int

    def records(self, when: float) -> bool:
        """Whether a moment is recorded."""
        return when in self.recorded or when == self.end

    def observes(self, when: float) -> bool:
        """Whether a record is observed."""
        return self.observe_at is None or when in self.observe_at

    def next_record(self, when: float) -> float:
        """Give the next moment that the flow must stop at."""
        later = bisect_right(self.recorded, when)
        return min(self.end, self.recorded[later]) if later < len(self.recorded) else self.end

    def next_rows(self, memory: Memory) -> tuple[Tensor, Memory]:
        """Give the rows of the next minibatch; a new order of all rows is drawn at the start of every epoch."""
        order, position = memory.get("order"), int(memory.get("position", 0))
        if order is None or position >= self.n:
            order, position = torch.randperm(self.n, generator=self.generator), 0
        rows = order[position : position + self.batch_size]
        return rows, {**memory, "order": order, "position": torch.tensor(position + len(rows))}

    def settings(self) -> dict[str, Any]:
        """Give what a resumed run must share."""
        names = ("method", "lr", "kappa", "centre", "momentum", "batch_size", "rtol", "atol", "n")
        return {name: getattr(self, name) for name in names}


def make_plan(
    method: Method,
    lr: float | None,
    steps: int | None,
    time: float | None,
    record: Sequence[float] | None,
    kappa: float,
    centre: bool,
    stop_below: float | None,
    momentum: float | None,
    batch_size: int | None,
    generator: torch.Generator | None,
    rtol: float,
    atol: float,
    observe_at: Sequence[float] | None,
    checkpoint_every: int,
    n: int,
) -> Plan:
    """Check every argument and give the plan."""
    if method not in ("gd", "momentum", "sgd", "adam", "flow"):
        raise InputError(f'method must be "gd", "momentum", "sgd", "adam" or "flow". Got {method!r}.')
    flow = method == "flow"
    _only("lr", lr, not flow, method)
    _only("steps", steps, not flow, method)
    _only("time", time, flow, method)
    _only("momentum", momentum, method == "momentum", method)
    _only("batch_size", batch_size, method == "sgd", method)
    _only("generator", generator, method == "sgd", method)
    check_generator(generator)
    if not flow:
        _whole("steps", steps, 0)
    end = _number("time", time, 0.0) if flow else float(steps or 0)
    moments = [0.0, *(_number("record", moment, 0.0) for moment in record or ())]
    if not flow and any(moment != int(moment) for moment in moments):
        raise InputError(f"record must be whole numbers of steps. Got {list(record or ())}.")
    if max(moments) > end:
        raise InputError(f"record must lie between 0 and the end, {end:g}. Got {max(moments):g}.")
    wanted = None if observe_at is None else frozenset(float(moment) for moment in observe_at)
    if wanted is not None and not wanted <= {*moments, end}:
        raise InputError(
            f"observe_at must be moments that are recorded. Got {sorted(wanted - {*moments, end})} besides. "
            "Write them in record too."
        )
    if batch_size is not None:
        _whole("batch_size", batch_size, 1)
    _whole("checkpoint_every", checkpoint_every, 1)
    return Plan(
        method,
        0.0 if flow else _number("lr", lr, 0.0, positive=True),
        end,
        tuple(sorted(set(moments))),
        _number("kappa", kappa, 0.0, positive=True),
        bool(centre),
        None if stop_below is None else _number("stop_below", stop_below, -math.inf),
        0.0 if momentum is None else _below_one("momentum", momentum),
        min(batch_size or n, n),
        generator,
        _number("rtol", rtol, 0.0, positive=True),
        _number("atol", atol, 0.0),
        wanted,
        checkpoint_every,
        n,
    )


def _only(name: str, value: object, needed: bool, method: str) -> None:
    if needed and value is None:
        raise InputError(f'method="{method}" needs {name}. Got None.')
    if not needed and value is not None:
        raise InputError(f'{name} must be left out with method="{method}": it has no effect there.')


def _number(name: str, value: object, least: float, positive: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputTypeError(f"{name} must be a number. Got {type(value).__name__}.")
    if not math.isfinite(value) or value < least or (positive and value == 0):
        raise InputError(f"{name} must be finite and {'positive' if positive else f'at least {least:g}'}. Got {value}.")
    return float(value)


def _below_one(name: str, value: float) -> float:
    if not _number(name, value, 0.0) < 1:
        raise InputError(f"{name} must be below 1. Got {value}.")
    return float(value)


def _whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"{name} must be an integer. Got {type(value).__name__}.")
    if value < least:
        raise InputError(f"{name} must be at least {least}. Got {value}.")
