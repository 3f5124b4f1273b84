"""Ridge, stopping time and gains: as given, or chosen by leave-one-out error or by marginal likelihood."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ntkit._src.common import check_choice, shown
from ntkit._src.dynamics import Evidence, LeaveOneOut, evidence, leave_one_out
from ntkit._src.kernels import Kernel
from ntkit.errors import InputError, SingularKernelError

from ._inputs import has_candidates, listed_numbers
from ._training_data import KernelSource, kernel_of

if TYPE_CHECKING:
    from ._blend import Blend

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


@dataclass(frozen=True)
class Choice:
    """What a fit uses."""

    kernel: Kernel | None  # None for a given Gram matrix
    ridge: float  # relative to trace(K)/n
    time: float = math.inf
    # How they were chosen; with a solver for many rows the held-out error of each ridge. None if nothing was chosen.
    record: LeaveOneOut | Evidence | Blend | Mapping[float, float] | None = None


@dataclass(frozen=True)
class Tuner:
    """Everything as given. Subclasses choose gains before the Gram matrix is computed, ridge and time once it is known.

    The fields are parameters of the estimator: values, candidates, or where a search starts.
    """

    ridge: Candidates = 0.0
    stopping_time: Candidates = None
    w_std: float | None = None
    b_std: float | None = None

    @property
    def given(self) -> Choice:
        """Ridge and time as given; zero and infinity in place of candidates."""
        ridge = 0.0 if self.ridge is None or has_candidates(self.ridge) else listed_numbers("ridge", self.ridge)[0]
        time = self.stopping_time
        stopped = time is not None and not has_candidates(time)
        return Choice(None, ridge, listed_numbers("stopping_time", time, infinite=True)[0] if stopped else math.inf)

    @property
    def spectral(self) -> bool:
        """Whether the fit needs an eigendecomposition."""
        return math.isfinite(self.given.time)

    def choose_kernel(self, source: KernelSource, x: Tensor, y: Tensor, weights: Tensor | None) -> Choice:
        """Choose the gains, from inputs of shape (n, ...), targets (n,) or (n, k) and weights (n,) of the points."""
        return replace(self.given, kernel=source.kernel)

    def choose_ridge(self, choice: Choice, gram: Tensor, y: Tensor, unit: float = 1.0) -> Choice:
        """Choose ridge and time from the matrix of the system, shape (n, n); :meth:`Weighting.ridge_unit` scales the ridges."""
        return choice

    def ridges(self, dtype: torch.dtype) -> list[float]:
        """Return the ridges to compare on held-out rows."""
        return [self.given.ridge]


class LeaveOneOutTuner(Tuner):
    """Ridge and time by the mean squared leave-one-out error: among the candidates, or the ridge if there are none."""

    @property
    def spectral(self) -> bool:
        return True

    def choose_ridge(self, choice: Choice, gram: Tensor, y: Tensor, unit: float = 1.0) -> Choice:
        if len(gram) < 2:
            raise InputError("tune='loo' leaves one sample out, so it needs at least two. Got n_samples=1.")
        trace = float(gram.diagonal().double().sum())
        automatic = [time / trace for time in _TIMES if trace > 0] + [math.inf]
        given = math.inf if self.stopping_time is None else self.stopping_time
        times = listed_numbers("stopping_time", given, automatic, infinite=True)
        only_times = has_candidates(self.stopping_time) and not has_candidates(self.ridge)
        ridges = [self.given.ridge] if only_times else self.ridges(gram.dtype)
        found = leave_each_out(gram, y, [unit * ridge for ridge in ridges], times)
        found = found if unit == 1 else replace(found, ridges=found.ridges / unit)
        return replace(choice, ridge=found.ridge, time=found.time, record=found)

    def ridges(self, dtype: torch.dtype) -> list[float]:
        return listed_numbers("ridge", self.ridge if has_candidates(self.ridge) else "auto", _RIDGES[dtype])


class EvidenceTuner(Tuner):
    """Ridge and gains by marginal likelihood, starting from those given; zeros, which have no logarithm, are replaced."""

    def choose_kernel(self, source: KernelSource, x: Tensor, y: Tensor, weights: Tensor | None) -> Choice:
        if source.limit is None:
            raise InputError(
                "tune='evidence' chooses the gains of a network, so kernel must be 'ntk' or 'nngp'. Got "
                f"{shown(source.kernel or 'precomputed')}: write tune='loo', which chooses the ridge of any kernel."
            )
        start: dict[str, Any] = {"w_std": self.w_std, "b_std": self.b_std, "ridge": self.given.ridge}
        given = {name: value for name, value in start.items() if not (isinstance(value, (int, float)) and value == 0)}
        found = evidence(source.limit, x, y, kernel=source.which, weights=weights, **given)
        return Choice(kernel_of(found.limit, source.which), found.ridge, record=found)


class AutoTuner(LeaveOneOutTuner):
    """Gains by marginal likelihood on at most 256 of the points, the same in every fit; then the ridge by leave-one-out error.

    A module in the NTK parametrisation keeps its own. As predictions do not depend on the scale of the targets (the ridge is
    relative to trace(K)/n), they are rescaled to that of the kernel at the start of the search.
    """

    def choose_kernel(self, source: KernelSource, x: Tensor, y: Tensor, weights: Tensor | None) -> Choice:
        limit = source.limit
        if limit is None or limit.gains.parametrized:
            return super().choose_kernel(source, x, y, weights)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        chosen = order[:_GAIN_POINTS].sort().values.to(x.device)
        points, targets = x[chosen], y[chosen]
        start = self.b_std if self.b_std else _START_B_STD
        at_start = kernel_of(limit.with_gains(self.w_std, start), source.which)
        variance, power = float(at_start.diag(points).double().mean()), float(targets.double().square().mean())
        if variance > 0 and power > 0:
            targets = targets * (variance / power) ** 0.5
        gains: dict[str, Any] = {"w_std": self.w_std, "b_std": start}
        found = evidence(limit, points, targets, source.which, **gains, max_steps=_GAIN_STEPS)
        return replace(self.given, kernel=kernel_of(found.limit, source.which))


_TUNERS = {"auto": AutoTuner, "loo": LeaveOneOutTuner, "evidence": EvidenceTuner, "blend": Tuner, None: Tuner}


def read_tuner(
    tune: str | None,
    ridge: Candidates,
    stopping_time: Candidates,
    w_std: float | None = None,
    b_std: float | None = None,
) -> Tuner:
    """Return the tuner that the parameters describe, or raise an error for settings that do not go together."""
    if tune is not None:
        check_choice("tune", tune, ("blend", "auto", "loo", "evidence"), " or None")
    if tune in ("evidence", "auto") and stopping_time is not None:
        raise InputError(
            f"tune={tune!r} chooses the ridge and the gains of a network trained to the end, so stopping_time must be "
            f"None. Got {shown(stopping_time)}: write tune='loo' to choose a stopping time."
        )
    for name, value, infinite in (("ridge", ridge, False), ("stopping_time", stopping_time, True)):
        listed = has_candidates(value) and listed_numbers(name, value, (0,), infinite=infinite)
        if listed and tune not in ("loo", "auto"):
            raise InputError(
                f"candidates for {name} need tune='loo' or 'auto'. Got {name}={shown(value)} and tune={tune!r}."
            )
    tuner = _TUNERS[tune](ridge, stopping_time, w_std, b_std)
    _ = tuner.given  # refuses wrong numbers before anything is computed
    return tuner


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
