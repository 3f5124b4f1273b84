"""Kernel regression of "same class?" on the base kernel itself: KR-V1 and KR-V2 of Chen, He and Su."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.solvers import solve

from ._pairs import Pairs

_BLOCK_ENTRIES = 2**20


class KernelRegression:
    r"""KR-V1 or KR-V2, the normalised similarity of Chen, He and Su (2020, D.3), a function of :math:`\varphi = K(x, x')` alone.

    .. math:: Z(\varphi) = \sum_{i,j} w_{ij}\, \psi(\varphi, K_{ij}), \qquad
              \psi(\varphi, \varphi') = \frac{B - (\varphi - \varphi')^2}{n^2 B - \sum_{s,t} (\varphi - K_{st})^2},
              \qquad B = (\max K - \min K)^2

    over all ordered training pairs, i = j included, with :math:`w_{ij}` the targets (V1), or :math:`(v v^T)_{ij}` with
    :math:`v = K^{-1} Y` and Y the label matrix (``inverse``, V2). With :math:`u = (\varphi - \bar K)/\sqrt B` and
    :math:`c_{ij} = (K_{ij} - \bar K)/\sqrt B`,

    .. math:: Z = \frac{S_0 (1 - u^2) + 2 u S_1 - S_2}{n^2 (1 - u^2 + 2 u \mu_1 - \mu_2)}, \qquad
              S_k = \sum_{i,j} w_{ij} c_{ij}^k, \quad \mu_k = \frac{1}{n^2} \sum_{i,j} c_{ij}^k,

    so it takes O(1) per pair, and nothing large cancels: :math:`\mu_1` is zero up to rounding, :math:`\mu_2` the variance.

    On the range of the training pairs every weight :math:`\psi` is nonnegative and they sum to one: V1 is a weighted mean of
    targets, and the denominator is at least :math:`n^2 \min(\max K - \bar K, \bar K - \min K)/\sqrt B > 0`. Beyond, weights turn
    negative, and at :math:`|\varphi - \bar K| = \sqrt{B (1 - \mu_2)}` Z has a pole, just outside the range if only the diagonal
    is far from the mean. A test pair can fall there, if only because an input is longer, so :math:`\varphi` is clipped to
    the range. If K is the same for all training pairs, none is more similar than another: Z is the mean weight.
    """

    low: float
    high: float
    mean: float
    sums: tuple[float, float, float]  # S_0, S_1, S_2
    offset: float  # mu_1
    variance: float  # mu_2
    pairs: int

    def __init__(self, inverse: bool, ridge: float = 0.0) -> None:
        self._inverse, self._ridge = inverse, ridge

    def fit(self, pairs: Pairs, labels: Tensor) -> KernelRegression:
        """Sum over all ordered pairs of ``pairs.k``, shape (n, n), with weights from ``labels``, shape (n, c)."""
        gram = pairs.k.detach()
        vectors = labels
        if self._inverse:
            vectors = solve(gram, labels.to(gram.dtype), ridge=self._ridge).value.double()
        low, high = torch.aminmax(gram)
        self.low, self.high, self.pairs = float(low), float(high), gram.numel()
        self.mean = float(gram.mean(dtype=torch.float64))
        scale, mean, square, first, second = self._scale, 0.0, 0.0, 0.0, 0.0
        size = max(1, _BLOCK_ENTRIES // len(gram))
        for rows, own in zip(gram.split(size), vectors.split(size), strict=True):
            centered = (rows.double() - self.mean) / scale
            mean += float(centered.sum())
            first += float((own * (centered @ vectors)).sum())
            centered.square_()
            second += float((own * (centered @ vectors)).sum())
            square += float(centered.sum())
        self.sums = float((vectors.sum(0) ** 2).sum()), first, second
        self.offset, self.variance = mean / self.pairs, square / self.pairs
        return self

    @property
    def _scale(self) -> float:
        return self.high - self.low if self.high > self.low else 1.0

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return Z, shape (n1, n2), of the dtype of the base kernel; differentiable in it."""
        size = max(1, _BLOCK_ENTRIES // pairs.k.shape[1])
        return torch.cat([self._values(rows) for rows in pairs.k.split(size)])

    def _values(self, k: Tensor) -> Tensor:
        zeroth, first, second = self.sums
        if not self.high > self.low:
            return torch.full_like(k, zeroth / self.pairs)
        u = (k.double().clamp(self.low, self.high) - self.mean) / self._scale
        rest = 1 - u * u
        weights = self.pairs * (rest + 2 * self.offset * u - self.variance)
        return ((zeroth * rest + 2 * first * u - second) / weights).to(k.dtype)
