"""Ridge, stopping time and gains: as given, or chosen by leave-one-out error or by marginal likelihood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ntkit._src.common import ntk_gains, shown
from ntkit._src.dynamics import Evidence, LeaveOneOut, evidence, leave_one_out
from ntkit._src.kernels import InfiniteWidth, infinite_width
from ntkit.errors import InputError, InputTypeError, SingularKernelError

__all__ = [
    "Candidates",
    "check_tuning",
    "leave_each_out",
    "ridge_candidates",
    "tune_by_evidence",
    "tune_by_leave_one_out",
    "tune_gains",
]

Candidates = float | str | Sequence[float] | None
"""A number, candidates in a sequence, or "auto" for candidates that suit the kernel; None is an infinite time."""

# Half decades. Below the smallest ridge a Gram matrix of that dtype is only rounding.
_RIDGES = {
    dtype: tuple(float(10**power) for power in np.arange(lowest, 1.25, 0.5))
    for dtype, lowest in ((torch.float64, -8), (torch.float32, -5))
}
_GAIN_POINTS, _GAIN_STEPS, _START_B_STD = 256, 20, 0.1
# In units of 1/trace(K): nothing is learnt before the first, and at the last even eigenvalues of 1e-10 trace(K) are.
_TIMES = tuple(float(10**power) for power in np.arange(0, 10.25, 0.5))


def check_tuning(tune: str | None, ridge: Candidates, stopping_time: Candidates) -> tuple[float, float]:
    """Return the ridge and the stopping time if neither is to be chosen, or raise an error for incompatible settings."""
    if tune is not None and (not isinstance(tune, str) or tune not in ("auto", "loo", "evidence")):
        raise InputError(f"tune must be 'auto', 'loo', 'evidence' or None. Got {tune!r}.")
    if tune in ("evidence", "auto") and stopping_time is not None:
        raise InputError(
            f"tune={tune!r} chooses the ridge and the gains of a network trained to the end, so stopping_time must be "
            f"None. Got {shown(stopping_time)}: write tune='loo' to choose a stopping time."
        )
    for name, value in (("ridge", ridge), ("stopping_time", stopping_time)):
        if tune not in ("loo", "auto") and _to_choose(value, name):
            raise InputError(
                f"candidates for {name} need tune='loo' or 'auto'. Got {name}={shown(value)} and tune={tune!r}."
            )
    return (
        0.0 if _to_choose(ridge, "ridge") else float(_number(ridge, "ridge")),
        math.inf if stopping_time is None or _to_choose(stopping_time, "stopping_time") else _time(stopping_time),
    )


def tune_by_leave_one_out(
    gram: Tensor, y: Tensor, ridge: Candidates, stopping_time: Candidates, unit: float = 1.0
) -> LeaveOneOut:
    """Choose by the mean squared leave-one-out error among the given candidates, or the ridge if there are none.

    ``unit`` is the factor from the user's ridges to those of the matrix: :meth:`Weighting.ridge_unit`.
    """
    if len(gram) < 2:
        raise InputError("tune='loo' leaves one sample out, so it needs at least two. Got n_samples=1.")
    nothing = not (_to_choose(ridge, "ridge") or _to_choose(stopping_time, "stopping_time"))
    ridges = _RIDGES[gram.dtype] if nothing or isinstance(ridge, str) else _listed(ridge)
    if isinstance(stopping_time, str):
        trace = float(gram.diagonal().double().sum())
        times: list[float] = [time / trace for time in _TIMES if trace > 0] + [math.inf]
    else:
        times = [math.inf] if stopping_time is None else [_time(time) for time in _listed(stopping_time)]
    found = leave_each_out(gram, y, [unit * _number(one, "ridge") for one in ridges], times)
    return found if unit == 1 else replace(found, ridges=found.ridges / unit)


def ridge_candidates(ridge: Candidates, dtype: torch.dtype) -> list[float]:
    """Return the ridges to choose from: those given, or half decades."""
    given = not isinstance(ridge, str) and _to_choose(ridge, "ridge")
    return [_number(one, "ridge") for one in (_listed(ridge) if given else _RIDGES[dtype])]


def leave_each_out(gram: Tensor, y: Tensor, ridges: Sequence[float], times: Sequence[float]) -> LeaveOneOut:
    """Leave one out, with ridges raised above any negative eigenvalue that float32 rounding caused in the matrix."""
    try:
        return leave_one_out(gram, y, list(ridges), list(times))
    except SingularKernelError:
        values = torch.linalg.eigvalsh(gram.double())
        lowest, scale = float(values[0]), float(gram.diagonal().double().mean())
        rounding = 10 * torch.finfo(torch.float32).eps * float(values[-1]) * len(gram) ** 0.5
        if not 0 < -lowest <= rounding:
            raise
        floor = -2 * lowest / scale
        lifted = dict.fromkeys(max(ridge, floor) for ridge in ridges)  # each once
        return leave_one_out(gram, y, list(lifted), list(times))


def tune_by_evidence(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    weights: Tensor | None,
    kernel: Literal["ntk", "nngp"],
    w_std: float | None,
    b_std: float | None,
    ridge: float,
) -> Evidence:
    """Choose gains and ridge by marginal likelihood, starting from those given; zeros, which have no logarithm, are replaced."""
    start: dict[str, Any] = {"w_std": w_std, "b_std": b_std, "ridge": ridge}
    given = {name: value for name, value in start.items() if not (isinstance(value, (int, float)) and value == 0)}
    return evidence(module, x, y, kernel=kernel, weights=weights, **given)


def tune_gains(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    kernel: Literal["ntk", "nngp"],
    w_std: float | None,
    b_std: float | None,
) -> InfiniteWidth:
    """Choose the gains by marginal likelihood on at most 256 of the points, the same in every fit.

    A module in the NTK parametrisation has its own, which stay. The scale of the targets does not matter, since a ridge
    relative to trace(K)/n makes predictions independent of it: they are rescaled to the scale of the kernel at the start of
    the search.
    """
    if ntk_gains(module):
        return infinite_width(module, w_std=w_std, b_std=b_std)
    chosen = (
        torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:_GAIN_POINTS].sort().values.to(x.device)
    )
    points, targets = x[chosen], y[chosen]
    start = b_std if b_std else _START_B_STD
    limit = infinite_width(module, w_std=w_std, b_std=start)
    variance = float((limit.ntk if kernel == "ntk" else limit.nngp).diag(points).double().mean())
    power = float(targets.double().square().mean())
    if variance > 0 and power > 0:
        targets = targets * (variance / power) ** 0.5
    return evidence(module, points, targets, kernel=kernel, w_std=w_std, b_std=start, max_steps=_GAIN_STEPS).limit


def _to_choose(value: object, name: str) -> bool:
    if isinstance(value, str):
        if value == "auto":
            return True
        raise InputTypeError(
            f"{name} must be a number, or candidates: 'auto' or a sequence of numbers. Got {shown(value)}."
        )
    return isinstance(value, (Sequence, np.ndarray, Tensor)) and np.ndim(value) > 0


def _listed(value: Any) -> list[Any]:
    values = list(value) if np.ndim(value) else [value]
    if not values:
        raise InputError("candidates must be at least one number. Got an empty sequence.")
    return values


def _number(value: Any, name: str) -> float:
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise InputTypeError(f"{name} must be a number. Got {shown(value)} of type {type(value).__name__}.")
    number = float(value)
    if not number >= 0 or (name == "ridge" and math.isinf(number)):
        allowed = "finite and not negative (it is relative to trace(K)/n)" if name == "ridge" else "not negative"
        raise InputError(f"{name} must be {allowed}. Got {number}.")
    return number


def _time(value: Any) -> float:
    return math.inf if value is None else _number(value, "stopping_time")
