"""Training with squared error: in the eigenbasis of the kernel every direction learns independently."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from scipy.optimize import brentq
from torch import Tensor

from ntkit._src.common import check_number, largest_eigenvalue
from ntkit._src.solvers import Solution, Spectrum, best_factor, check_gram, check_ridge, decompose
from ntkit.errors import InputError, SingularKernelError


@dataclass(frozen=True)
class Descent:
    r"""Gradient descent in steps, as by ``torch.optim.SGD`` over the whole training set.

    With the gradient g of the loss **summed** over the points, the velocity is :math:`b \leftarrow m b + g` and the step
    :math:`-\eta b`, or :math:`-\eta (g + m b)` for Nesterov's.

    Attributes
    ----------
    learning_rate
        :math:`\eta > 0`.
    momentum
        m, at least 0 and below 1. Default 0.
    nesterov
        Nesterov's momentum instead of the heavy ball. Default False.

    See Also
    --------
    ntkit.GradientFlow : takes one, ``predict(x, t=steps, descent=...)``.
    ntkit.Schedule : gradient descent of finite networks.

    Examples
    --------
    >>> from ntkit import Descent
    >>> Descent(learning_rate=0.1, momentum=0.9)
    Descent(learning_rate=0.1, momentum=0.9, nesterov=False)
    """

    learning_rate: float
    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, positive=True)
        if not 0 <= check_number("momentum", self.momentum) < 1:
            raise InputError(f"momentum must be at least 0 and below 1. Got {self.momentum}.")

    @property
    def stability(self) -> float:
        """Descent converges if the learning rate times the curvature is below this."""
        return 2 * (1 + self.momentum) / (1 + 2 * self.momentum if self.nesterov else 1)


def descent_step(descent: Descent, weights: Tensor, velocity: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the velocity after a step along ``change``, the negative gradient, all of one shape."""
    velocity = descent.momentum * velocity + change
    step = change + descent.momentum * velocity if descent.nesterov else velocity
    return weights + descent.learning_rate * step, velocity


def flow_filter(mu: Tensor, t: float) -> Tensor:
    """Return (1 - e^{-mu t}) / mu for the eigenvalues mu >= 0, shape (n,); where mu is zero, t, or 0 if t is infinite."""
    safe = torch.where(mu > 0, mu, 1)
    if math.isinf(t):
        return torch.where(mu > 0, 1 / safe, 0)
    return torch.where(mu > 0, -torch.expm1(-safe * t) / safe, t)


def descent_filter(mu: Tensor, steps: int, descent: Descent) -> Tensor:
    r"""Return a_t of b' = m b + 1 - mu a, a' = a + eta b' (or Nesterov's) from a = b = 0, shape (n,).

    Without momentum it is :math:`(1 - (1 - \eta \mu)^t) / \mu` (Golikov et al. 2022, eq. 99), with it a power of a 3 x 3 matrix.
    """
    eta, m = descent.learning_rate, descent.momentum
    mu = mu.double()
    if m == 0:
        safe = torch.where(mu > 0, mu, 1)
        decay = 1 - eta * safe
        # log1p keeps the digits of 1 - (1 - eta mu)^t where eta mu is small.
        smooth = -torch.expm1(steps * torch.log1p(-(eta * safe).clamp_max(0.5)))
        value = torch.where(eta * safe < 0.5, smooth, 1 - decay**steps)
        return torch.where(mu > 0, value / safe, steps * eta)
    step = torch.zeros(len(mu), 3, 3, dtype=mu.dtype, device=mu.device)
    lead, carry = (eta * (1 + m), eta * m * m) if descent.nesterov else (eta, eta * m)
    step[:, 0, 0], step[:, 0, 1], step[:, 0, 2] = 1 - lead * mu, carry, lead
    step[:, 1, 0], step[:, 1, 1], step[:, 1, 2] = -mu, m, 1
    step[:, 2, 2] = 1
    power: Tensor = torch.linalg.matrix_power(step, steps)
    return power[:, 0, 2]


def learned_filter(spectrum: Spectrum, ridge: float, t: float, descent: Descent | None = None) -> Tensor:
    """Return the filter of flow or descent at a time (or step) for the eigenvalues of K plus the ridge, shape (n,)."""
    mu = spectrum.shifted(ridge)
    values = flow_filter(mu, t) if descent is None or math.isinf(t) else descent_filter(mu, int(t), descent)
    # Outputs do not move along directions whose eigenvalue is rounding; a weight there would only add noise.
    return torch.where(spectrum.clean != 0, values, 0).to(mu.dtype)


def largest_gram_eigenvalue(gram: Tensor) -> float:
    """Return the largest eigenvalue of a symmetric matrix, shape (n, n)."""
    matrix = gram.detach()
    return largest_eigenvalue(lambda vector: matrix @ vector, len(matrix), matrix)


def max_learning_rate(
    gram: Tensor, ridge: float = 0.0, momentum: float = 0.0, nesterov: bool = False, curvature: float = 1.0
) -> float:
    r"""Return the learning rate below which gradient descent converges.

    For the squared error :math:`\frac{1}{2} \sum (f - y)^2` the step :math:`f \leftarrow f - \eta \Theta (f - y)` converges
    in every eigendirection if and only if :math:`\eta < 2 / \lambda_1` (Golikov et al. 2022, section 6.1.2); the heavy ball
    allows :math:`2 (1 + m) / \lambda_1`, Nesterov's momentum :math:`2 (1 + m) / ((1 + 2m) \lambda_1)`.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        Theta(X, X).
    ridge : float
        Relative to trace(K)/n; it is added to the eigenvalues. Default 0.
    momentum : float
    nesterov : bool
        See :class:`Descent`. Defaults 0 and False.
    curvature : float
        Curvature of the loss with respect to the outputs: 1 for the squared error, at most 1/2 for cross-entropy and 1/4 for
        binary cross-entropy, for which the bound is sufficient. Default 1.

    Returns
    -------
    float
        The learning rate for the loss **summed** over the points; that for their mean is n times larger.

    See Also
    --------
    ntkit.GradientFlow.max_learning_rate : of a fitted flow.

    Examples
    --------
    >>> import torch, ntkit
    >>> round(ntkit.max_learning_rate(torch.diag(torch.tensor([4.0, 1.0, 0.5]))), 6)
    0.5
    """
    gram = check_gram(gram)
    scale = float(gram.detach().diagonal().double().mean())
    largest = curvature * largest_gram_eigenvalue(gram) + check_ridge(ridge) * scale
    if not largest > 0:
        return math.inf
    return Descent(1.0, momentum, nesterov).stability / largest


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
    r"""Weights :math:`a_t = \phi_t(K + \rho I)(y - f_0)`, f_t = f_0 + K a_t, for :math:`L = \frac{1}{2} \sum (f - y)^2`.

    ``gram`` is K, shape (n, n), whose memory the eigenvectors take if it is ``owned``; ``residual`` is y - f_0, shape (n, k).
    """

    def __init__(self, gram: Tensor, residual: Tensor, ridge: float, owned: bool) -> None:
        self.gram: Tensor | None = gram
        self.residual, self.ridge, self.owned = residual, ridge, owned
        self._limit: Solution | None = None

    @property
    def status(self) -> str:
        """What has been computed so far, and what had to be done to the matrix."""
        parts = [part.status for part in (self._limit, self.__dict__.get("spectrum")) if part is not None]
        return " ".join(parts) if parts else "Nothing was computed yet."

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigendecomposition, computed when first needed."""
        assert self.gram is not None
        found = decompose(self.gram, overwrite=self.owned)
        if self.owned:
            self.gram = None
        return found

    @cached_property
    def projected(self) -> Tensor:
        """V^T (y - f_0), shape (n, k)."""
        return self.spectrum.vectors.T @ self.residual

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
        return torch.stack([last if last is not None and math.isinf(t) else self._spectral(t, descent) for t in times])

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
        return learned_filter(self.spectrum, self.ridge, t, descent)

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
            weight, velocity = descent_step(descent, weight, velocity, 1 - mu * weight)
        return math.inf

    def _check_stable(self, descent: Descent) -> None:
        largest = descent.stability / float(self.spectrum.shifted(self.ridge)[-1])
        if descent.learning_rate >= largest:
            raise InputError(
                f"gradient descent diverges with learning rate {descent.learning_rate:g}: it must be below "
                f"{largest:g} here. Write Descent(0.9 * flow.max_learning_rate())."
            )
