"""Spectral filters: how far gradient flow and gradient descent have learnt each eigendirection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import largest_eigenvalue, shown
from ntkit._src.solvers import check_gram, check_ridge
from ntkit.errors import InputError, InputTypeError

__all__ = ["Descent", "descent_filter", "flow_filter", "largest_gram_eigenvalue", "max_learning_rate"]


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
        for name in ("learning_rate", "momentum"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise InputTypeError(f"{name} must be a number. Got {shown(value)}.")
        if not 0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate must be positive and finite. Got {self.learning_rate}.")
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum must be at least 0 and below 1. Got {self.momentum}.")

    @property
    def stability(self) -> float:
        """Descent converges if the learning rate times the curvature is below this."""
        return 2 * (1 + self.momentum) / (1 + 2 * self.momentum if self.nesterov else 1)


def flow_filter(mu: Tensor, t: float) -> Tensor:
    """Return (1 - e^{-mu t}) / mu for the eigenvalues mu >= 0, shape (n,); where mu is zero, t, or 0 if t is infinite."""
    safe = torch.where(mu > 0, mu, 1)
    if math.isinf(t):
        return torch.where(mu > 0, 1 / safe, 0)
    return torch.where(mu > 0, -torch.expm1(-safe * t) / safe, t)


def descent_filter(mu: Tensor, steps: int, descent: Descent) -> Tensor:
    r"""Return a_t of the recurrence b' = m b + 1 - mu a, a' = a + eta b' (or Nesterov's) from a = b = 0, shape (n,).

    Without momentum it is :math:`(1 - (1 - \eta \mu)^t) / \mu` (Golikov et al. 2022, eq. 99), with it the power of a 3 x 3
    matrix by repeated squaring: exact up to rounding, which grows like t times the machine epsilon.
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
