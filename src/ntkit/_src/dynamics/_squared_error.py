"""Training with squared error in the eigenbasis of the kernel, where every direction learns independently."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch
from scipy.optimize import brentq
from torch import Tensor

from ntkit._src.solvers import Solution, Spectrum, best_factor, decompose
from ntkit.errors import InputError, SingularKernelError

from ._descent import Descent, descent_filter, flow_filter

__all__ = ["LearningCurves", "SquaredError"]

_MOST_STEPS = 10**6


@dataclass(frozen=True)
class LearningCurves:
    """How the outputs on the training points move along each eigenvector of the kernel.

    Attributes
    ----------
    eigenvalues
        Shape (n,), decreasing.
    targets
        The targets' coordinates v_k^T y, shape (n,) or (n, k).
    values
        The outputs' coordinates u_{t,k} = v_k^T f_t, shape (m, n) or (m, n, k) for m times.
    times
        The times (or steps), shape (m,).
    """

    eigenvalues: Tensor
    targets: Tensor
    values: Tensor
    times: Tensor


class SquaredError:
    r"""Weights a with f_t = f_0 + K a_t for :math:`L = \frac{1}{2} \sum (f - y)^2`, all from one eigendecomposition.

    :math:`a' = y - f_0 - (K + \rho I) a` gives :math:`a_t = \phi_t(K + \rho I)(y - f_0)`.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        K, checked.
    residual : Tensor of shape (n, k)
        y - f_0 on the training points.
    ridge : float
        Relative to trace(K)/n.
    owned : bool
        Whether the eigenvectors may overwrite the matrix, which saves n^2 values.
    """

    def __init__(self, gram: Tensor, residual: Tensor, ridge: float, owned: bool) -> None:
        self.gram: Tensor | None = gram
        self.residual, self.ridge, self.owned = residual, ridge, owned
        self._spectrum: Spectrum | None = None
        self._projected: Tensor | None = None
        self._limit: Solution | None = None

    @property
    def status(self) -> str:
        """What has been computed so far, and what had to be done to the matrix."""
        parts = [part.status for part in (self._limit, self._spectrum) if part is not None]
        return " ".join(parts) if parts else "Nothing was computed yet."

    @property
    def spectrum(self) -> Spectrum:
        """The eigendecomposition, computed when first needed."""
        if self._spectrum is None:
            assert self.gram is not None
            self._spectrum = decompose(self.gram, overwrite=self.owned)
            if self.owned:
                self.gram = None
        return self._spectrum

    @property
    def projected(self) -> Tensor:
        """V^T (y - f_0), shape (n, k)."""
        if self._projected is None:
            self._projected = self.spectrum.vectors.T @ self.residual
        return self._projected

    def limit(self) -> Tensor:
        """Return a at infinite time, shape (n, k): by Cholesky or, if that fails, from the eigenvalues above rounding."""
        if self._limit is None and self.gram is not None:
            with contextlib.suppress(SingularKernelError):
                self._limit = best_factor(self.gram, self.residual, self.ridge, stacklevel=7)[1]
        return self._spectral(math.inf, None) if self._limit is None else self._limit.value

    def weights(self, times: list[float], descent: Descent | None) -> Tensor:
        """Return a at the times (or after the steps), shape (m, n, k)."""
        last = self.limit() if any(map(math.isinf, times)) else None
        if descent is not None and any(map(math.isfinite, times)):
            self._check_stable(descent)
        found = [last if last is not None and math.isinf(t) else self._spectral(t, descent) for t in times]
        return torch.stack(found)

    def _spectral(self, t: float, descent: Descent | None) -> Tensor:
        return self.spectrum.vectors @ (self._filter(t, descent)[:, None] * self.projected)

    def outputs(self, times: list[float], descent: Descent | None) -> Tensor:
        """Return K a at the times, shape (m, n, k)."""
        weights = self.weights(times, descent)
        if self.gram is not None:
            return torch.stack([self.gram @ one for one in weights])
        vectors, values = self.spectrum.vectors, self.spectrum.clean[:, None]
        return torch.stack([vectors @ (values * (vectors.T @ one)) for one in weights])

    def coordinates(self, times: list[float], descent: Descent | None) -> Tensor:
        """Return V^T K a at the times, shape (m, n, k)."""
        if descent is not None:
            self._check_stable(descent)
        learned = [(self.spectrum.clean * self._filter(t, descent))[:, None] * self.projected for t in times]
        return torch.stack(learned)

    def _filter(self, t: float, descent: Descent | None) -> Tensor:
        # Outputs do not move along directions whose eigenvalue is rounding; a weight there would only add noise.
        mu = self.spectrum.shifted(self.ridge)
        known = self.spectrum.clean != 0
        values = flow_filter(mu, t) if descent is None or math.isinf(t) else descent_filter(mu, int(t), descent)
        return torch.where(known, values, 0).to(mu.dtype)

    def _loss(self, t: float, descent: Descent | None) -> float:
        left = 1 - self.spectrum.clean.double() * self._filter(t, descent).double()
        return float(((left[:, None] * self.projected.double()) ** 2).sum()) / 2

    def time_to_loss(self, value: float, t_max: float, descent: Descent | None) -> float:
        """Return the first time (or step) at which the loss is at most ``value``; infinity if there is none by ``t_max``."""
        if self._loss(0, descent) <= value:
            return 0.0
        if descent is not None:
            self._check_stable(descent)
            if descent.momentum > 0 or descent.learning_rate * float(self.spectrum.shifted(self.ridge)[-1]) > 1:
                return self._walk(value, min(t_max, _MOST_STEPS), descent)
        if self._loss(t_max, descent) > value or (math.isinf(t_max) and self._loss(t_max, descent) == value):
            return math.inf
        # Every direction's error falls monotonically here, so the loss does.
        low, high = 0.0, 1.0
        while self._loss(high, descent) > value:
            low, high = high, 2 * high
        if descent is None:
            while self._loss(high / 2, None) <= value:
                high /= 2
            root = brentq(lambda log_t: self._loss(math.exp(log_t), None) - value, math.log(high / 2), math.log(high))
            return math.exp(root)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._loss(middle, descent) <= value else (middle, high)
        return high

    def _walk(self, value: float, most: float, descent: Descent) -> float:
        """Step along the recurrence of each direction, since with momentum the loss may rise in between."""
        mu, kernel = self.spectrum.shifted(self.ridge).double(), self.spectrum.clean.double()
        power = (self.projected.double() ** 2).sum(1)
        weight, velocity = torch.zeros_like(mu), torch.zeros_like(mu)
        for step in range(int(most) + 1):
            if float((power * (1 - kernel * weight) ** 2).sum()) / 2 <= value:
                return float(step)
            change = 1 - mu * weight
            velocity = descent.momentum * velocity + change
            weight = weight + descent.learning_rate * (
                change + descent.momentum * velocity if descent.nesterov else velocity
            )
        return math.inf

    def _check_stable(self, descent: Descent) -> None:
        largest = descent.stability / float(self.spectrum.shifted(self.ridge)[-1])
        if descent.learning_rate >= largest:
            raise InputError(
                f"gradient descent diverges with learning rate {descent.learning_rate:g}: it must be below "
                f"{largest:g} here. Write Descent(0.9 * flow.max_learning_rate())."
            )
