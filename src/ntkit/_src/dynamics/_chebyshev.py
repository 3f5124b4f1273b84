"""Runge-Kutta-Chebyshev steps: an explicit integrator for stiff gradient flows, as an ``OdeSolver`` of SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import OdeSolver
from scipy.interpolate import CubicHermiteSpline

_DAMPING = 2 / 13
_REACH = 1.54  # s stages are stable as far as h rho = (s^2 - 1) / 1.54
_AGAIN = 20  # steps after which the spectral radius is measured anew
_SAFETY, _SHRINK, _GROW = 0.8, 0.1, 5.0

Vector = NDArray[Any]


class Chebyshev(OdeSolver):  # type: ignore[misc]  # SciPy has no types
    """The second-order method of Sommeijer, Shampine and Verwer (1997) for y' = F(y) with real, negative eigenvalues.

    A step of length h has as many stages s as it needs: it is stable up to h = 0.65 s^2 / rho, rho being the spectral radius of
    the Jacobian, which ``radius`` bounds at a state. The tolerances are those of a step; all errors add up to about rtol^(2/3).
    """

    t: float
    y: Vector
    t_bound: float
    fun: Callable[[float, Vector], Vector]

    def __init__(
        self,
        fun: Callable[[float, Vector], Vector],
        t0: float,
        y0: Vector,
        t_bound: float,
        vectorized: bool,
        rtol: float,
        atol: float,
        radius: Callable[[Vector], float],
    ) -> None:
        super().__init__(fun, t0, y0, t_bound, vectorized)
        self.rtol, self.atol = rtol, atol
        self._radius = radius
        self._rho = radius(y0)
        self._measured = 0  # steps since the radius was measured
        self._slope = self.fun(t0, self.y)
        self._h = self._first_step()
        self._before: tuple[float, Vector, Vector] = (t0, self.y, self._slope)

    def _first_step(self) -> float:
        """Return a step at whose end an Euler step and its correction differ by a hundredth of the tolerance."""
        h = min(abs(self.t_bound - self.t), 1 / self._rho if self._rho > 0 else math.inf)
        if not math.isfinite(h) or h == 0:
            return 1.0
        change = self.fun(self.t + h, self.y + h * self._slope) - self._slope
        error = h * self._norm(change, self.y, self.y)
        return h / 10 if error <= 0 else min(h, 0.1 * h / math.sqrt(error))

    def _norm(self, error: Vector, old: Vector, new: Vector) -> float:
        scale = self.atol + self.rtol * np.maximum(np.abs(old), np.abs(new))
        return float(np.sqrt(np.mean(np.square(error / scale))))

    def _step_impl(self) -> tuple[bool, str | None]:
        while True:
            h = min(self._h, abs(self.t_bound - self.t))
            if self.t + h <= self.t:
                return False, str(OdeSolver.TOO_SMALL_STEP)
            if self._measured >= _AGAIN:
                self._rho, self._measured = self._radius(self.y), 0
            y = self._stages(h, max(2, 1 + int(math.sqrt(_REACH * h * self._rho + 1))))
            slope = self.fun(self.t + h, y)
            error = self._norm(0.8 * (self.y - y) + 0.4 * h * (self._slope + slope), self.y, y)
            factor = _SAFETY * error ** (-1 / 3) if 0 < error < math.inf else (_GROW if error == 0 else _SHRINK)
            self._h = h * min(_GROW, max(_SHRINK, factor))
            if error <= 1:
                self._before = self.t, self.y, self._slope
                self.t, self.y, self._slope = self.t + h, y, slope
                self._measured += 1
                return True, None
            self._measured = _AGAIN  # a larger radius than was measured makes a step unstable, which shows as an error

    def _stages(self, h: float, count: int) -> Vector:
        """Return y after a step of length h with so many stages."""
        w0 = 1 + _DAMPING / count**2
        t, dt, ddt = _chebyshev(w0, count)
        w1 = dt[count] / ddt[count]
        b = np.empty(count + 1)
        b[2:] = ddt[2:] / dt[2:] ** 2
        b[:2] = b[2]
        a = 1 - b * t
        earlier: Vector = self.y
        latest: Vector = self.y + b[1] * w1 * h * self._slope
        for j in range(2, count + 1):
            mu, nu, step = 2 * b[j] * w0 / b[j - 1], -b[j] / b[j - 2], 2 * b[j] * w1 / b[j - 1] * h
            # Autonomous: the time of a stage does not matter, and is that of the step's end for messages.
            slope = self.fun(self.t + h, latest)
            new = (1 - mu - nu) * self.y + mu * latest + nu * earlier + step * (slope - a[j - 1] * self._slope)
            earlier, latest = latest, new
        return latest

    def _dense_output_impl(self) -> Callable[[Any], Vector]:
        """Return the cubic that has the values and slopes of both ends of the step."""
        t, y, slope = self._before
        cubic = CubicHermiteSpline([t, self.t], np.stack([y, self.y]), np.stack([slope, self._slope]))
        return lambda at: cubic(at).T


def _chebyshev(x: float, degree: int) -> tuple[Vector, Vector, Vector]:
    """Return T_j(x) with its first and second derivatives for j = 0 to a degree of at least two."""
    t, dt, ddt = (np.zeros(degree + 1) for _ in range(3))
    t[0], t[1], dt[1] = 1.0, x, 1.0
    for j in range(2, degree + 1):
        t[j] = 2 * x * t[j - 1] - t[j - 2]
        dt[j] = 2 * t[j - 1] + 2 * x * dt[j - 1] - dt[j - 2]
        ddt[j] = 4 * dt[j - 1] + 2 * x * ddt[j - 1] - ddt[j - 2]
    return t, dt, ddt
