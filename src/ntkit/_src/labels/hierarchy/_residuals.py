"""The time integrals of the tangent hierarchy (Chen, He and Su 2020, Prop. A.2 and eq. 5), as a few pairs of weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import check_number
from ntkit._src.dynamics import flow_filter
from ntkit.errors import SingularKernelError

RANK_TOLERANCE = 1e-13  # singular values of the weights below this fraction of the largest are left out
SERIES_TERMS = 24  # of the Taylor series in a + b <= 1: the next is below 1e-26


def double_integral(d1: Tensor, d2: Tensor, t: float) -> Tensor:
    r"""Return int_0^t e^(-s d1) int_0^s e^(-r d2) dr ds, elementwise, to rounding.

    The integral is a divided difference of the exponential function: with a = t d1, b = t d2 and phi(x) = (1 - e^(-x)) / x it is
    t^2 (phi(a) - e^(-a) phi(b)) / (a + b), and 1 / (d1 (d1 + d2)) at t = infinity. If a + b is small, the Taylor series
    t^2 sum_k (-1)^k h_k(a, a + b) / (k + 2)! of complete homogeneous polynomials h_k avoids the cancellation.
    """
    if math.isinf(t):
        return 1 / (d1 * (d1 + d2))
    a, total = t * d1, t * (d1 + d2)
    small = total <= 1
    large = torch.where(small, 1, total)
    closed = (flow_filter(a, 1.0) - torch.exp(-a) * flow_filter(t * d2, 1.0)) / large
    a, c = torch.where(small, a, 0), torch.where(small, total, 0)
    power, h = torch.ones_like(c), torch.ones_like(c)  # a^k and h_k(a, c) = c h_(k-1) + a^k
    series = h / 2
    for k in range(1, SERIES_TERMS):
        power = power * a
        h = c * h + power
        series = series + h * ((-1) ** k / math.factorial(k + 2))
    return t * t * torch.where(small, series, closed)


@dataclass(frozen=True)
class Residuals:
    """The residuals y - h_t = e^(-t H) y of kernel gradient flow from h_0 = 0, in the eigenvectors of H = E K2.

    Time is that of gradient flow of the summed loss, sum_i (h(x_i) - y_i)^2 / 2, as in :class:`ntkit.GradientFlow`.
    """

    values: Tensor  # eigenvalues of H, the ridge added, shape (n,), positive
    vectors: Tensor  # its eigenvectors, columns, shape (n, n)
    y: Tensor  # the targets in the eigenvectors, shape (n,)

    @classmethod
    def of(cls, gram: Tensor, y: Tensor, ridge: float) -> Residuals:
        """Decompose the training Gram matrix, ``ridge`` times its mean diagonal added; SingularKernelError if it is singular."""
        values, vectors = torch.linalg.eigh(gram.double())
        values = values + ridge * float(gram.double().diagonal().mean())
        least, most = float(values[0]), float(values[-1])
        floor = len(values) * torch.finfo(gram.dtype).eps * most
        if not least > floor:
            raise SingularKernelError(
                f"the training Gram matrix of E K2 must be positive definite. Got eigenvalues from {least:.3g} to {most:.3g}: "
                "inputs are repeated, or nearly. Remove repeated inputs, or write ridge=1e-6 (relative to the mean diagonal)."
            )
        return cls(values, vectors, vectors.T @ y.double())

    def first(self, t: float) -> Tensor:
        """Return u of the K3 term of Proposition A.2, H^-1 (1 - e^(-t H)) y, shape (n,)."""
        return self.vectors @ (flow_filter(self.values, t) * self.y)

    def second(self, t: float) -> tuple[Tensor, Tensor]:
        r"""Return u and v, shape (Q, n), with the K4 term of Proposition A.2 equal to sum_q sum_ij u_qi v_qj K4(x, x', x_i, x_j).

        The term is the integral over v <= u <= t of (y - h_u)_i K4_ij (y - h_v)_j, so in eigenvectors its weights are
        y_k y_l ``double_integral(d_k, d_l, t)``, the second and third line of the proposition in one, without their
        cancellation; at t = infinity y_k y_l / (d_k (d_k + d_l)). Their singular values decay fast, so that some ten or
        twenty singular vectors hold them to rounding.
        """
        weights = double_integral(self.values[:, None], self.values[None, :], t)
        left, size, right = torch.linalg.svd(self.y[:, None] * weights * self.y)
        kept = max(1, int((size > RANK_TOLERANCE * size[0]).sum()))
        return (self.vectors @ (left[:, :kept] * size[:kept])).T, right[:kept] @ self.vectors.T


def check_time(t: float) -> float:
    """Return a training time, from 0 to infinity."""
    return t if t == math.inf else check_number("a time other than infinity", t, 0)
