"""Training with a loss that has no closed form: by an ODE integrator, or step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from torch import Tensor

from ntkit._src.common import Loss, Progress, check_choice, check_integer, check_number
from ntkit.errors import InputError

from ._chebyshev import Chebyshev
from ._squared_error import Descent, descent_step

_METHODS = ("RK45", "RKC", "RK23", "DOP853", "Radau", "BDF", "LSODA")
_POWER_STEPS = 60  # of the power iteration for a spectral radius
_MARGIN = 1.1  # of that radius: power iterations approach it from below


@dataclass(frozen=True)
class KernelTraining:
    """Outputs f = start + K a, shape (n, k), with the loss L(f, y) + shift/2 a^T K a; ``shift`` is the ridge times trace(K)/n."""

    gram: Tensor
    start: Tensor
    targets: Tensor
    loss: Loss
    shift: float

    def velocity(self, outputs: Tensor, weights: Tensor) -> Tensor:
        """Return a' = -dL/df - shift a, shape (n, k), of gradient flow."""
        return -self.loss.slope(outputs, self.targets) - self.shift * weights


@dataclass(frozen=True)
class Integrator:
    """How to integrate an ODE: ``"RKC"`` or a method of SciPy's, tolerances, and the maximum number of evaluations."""

    method: str = "RK45"
    rtol: float = 1e-6
    atol: float = 1e-8
    max_evaluations: int = 200_000

    def __post_init__(self) -> None:
        check_choice("integrator", self.method, _METHODS)
        check_number("rtol", self.rtol, positive=True)
        check_number("atol", self.atol, positive=True)
        check_integer("max_evaluations", self.max_evaluations, 1)


def integrate(
    problem: KernelTraining, times: list[float], integrator: Integrator, stop_loss: float | None = None
) -> tuple[dict[float, Tensor], float]:
    """Integrate a' = -dL/df - shift a from 0 together with f' = K a', at one product with K per evaluation.

    Returns the weights by time, and the time at which the loss fell to ``stop_loss``, where it ends; infinity if it did not.
    """
    n, k = problem.start.shape
    evaluations = 0

    def unpack(state: NDArray[Any]) -> tuple[Tensor, Tensor]:
        both = torch.from_numpy(state).to(problem.gram).view(2, n, k)
        return both[0], both[1]

    def right_hand_side(t: float, state: NDArray[Any]) -> NDArray[Any]:
        nonlocal evaluations
        evaluations += 1
        if evaluations > integrator.max_evaluations:
            stiff = "" if integrator.method == "RKC" else ', or take integrator="RKC", for stiff problems in float64'
            raise InputError(
                f"integrating {problem.loss.name} took more than {integrator.max_evaluations} evaluations by t = {t:.3g}. Ask "
                f"for a smaller t, use Descent, raise max_evaluations{stiff}."
            )
        outputs, weights = unpack(state)
        change = problem.velocity(outputs, weights)
        return torch.stack([problem.gram @ change, change]).double().cpu().numpy().ravel()

    def above(t: float, state: NDArray[Any]) -> float:
        assert stop_loss is not None
        return float(problem.loss.value(unpack(state)[0], problem.targets)) - stop_loss

    above.terminal = True  # type: ignore[attr-defined]
    origin = torch.stack([problem.start, torch.zeros_like(problem.start)]).double().cpu().numpy().ravel()
    found = {t: torch.zeros_like(problem.start) for t in times if t == 0}
    later = sorted({t for t in times if t > 0})
    if not later:
        return found, math.inf
    chebyshev = integrator.method == "RKC"
    if chebyshev and problem.gram.dtype != torch.float64:
        raise InputError(
            f'integrator="RKC" needs a kernel in float64, as its stages add up rounding. Got {problem.gram.dtype}.'
        )
    options: dict[str, Any] = {"radius": lambda state: _radius(problem, unpack(state)[0])} if chebyshev else {}
    result = solve_ivp(
        right_hand_side,
        (0.0, later[-1]),
        origin,
        method=Chebyshev if chebyshev else integrator.method,
        t_eval=[t for t in later if math.isfinite(t)],
        events=None if stop_loss is None else above,
        rtol=integrator.rtol,
        atol=integrator.atol,
        **options,
    )
    states = np.ascontiguousarray(np.transpose(result.y)) if len(result.t) else np.empty((0, len(origin)))
    if result.status < 0 or not np.isfinite(states).all():
        raise InputError(
            f"the integration of {problem.loss.name} failed: {result.message} Is the loss smooth and bounded below?"
        )
    found.update({t: unpack(state)[1] for t, state in zip(map(float, result.t), states, strict=True)})
    if stop_loss is None or not len(result.t_events[0]):
        return found, math.inf
    stop = float(result.t_events[0][0])
    found[stop] = unpack(np.ascontiguousarray(result.y_events[0][0]))[1]
    return found, stop


def _radius(problem: KernelTraining, outputs: Tensor) -> float:
    """Return the largest eigenvalue of K d^2L/df^2 + shift at some outputs, by power iteration with differences of dL/df."""
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
    direction /= direction.norm()
    reach = 1e-6 * (1 + float(outputs.abs().max()))
    found = 0.0
    for _ in range(_POWER_STEPS):
        sides = [problem.loss.slope(outputs + sign * reach * direction, problem.targets) for sign in (1, -1)]
        change = problem.gram @ (sides[0] - sides[1]) / (2 * reach)
        before, found = found, float(change.norm())
        if found == 0 or abs(found - before) <= 0.01 * found:
            break
        direction = change / found
    return _MARGIN * found + problem.shift


def descend(
    problem: KernelTraining,
    steps: list[int],
    descent: Descent,
    stop_loss: float | None = None,
    progress: Progress | None = None,
) -> tuple[dict[int, Tensor], float]:
    """Take steps of gradient descent from a = 0; return the weights by step and the first step within ``stop_loss``."""
    weights, velocity = torch.zeros_like(problem.start), torch.zeros_like(problem.start)
    wanted, last = set(steps), max(steps)
    found: dict[int, Tensor] = {}
    for step in range(last + 1):
        if step in wanted:
            found[step] = weights.clone()
        if step == last and stop_loss is None:
            break
        outputs = problem.start + problem.gram @ weights
        if stop_loss is not None and float(problem.loss.value(outputs, problem.targets)) <= stop_loss:
            found[step] = weights.clone()
            return found, step
        weights, velocity = descent_step(descent, weights, velocity, problem.velocity(outputs, weights))
        if progress is not None:
            progress(step + 1, last)
    if not all(bool(torch.isfinite(value).all()) for value in found.values()):
        raise InputError(
            f"gradient descent on {problem.loss.name} with learning rate {descent.learning_rate:g} diverged: stay below "
            "max_learning_rate()."
        )
    return found, math.inf
