"""The early correlation of the ansatz, split into what the mean kernel says and what its fluctuations add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit.extending import check_integer
from ntkit.features import ptk

from ._predict_alignment import expected_derivatives, predict_alignment

__all__ = ["AlignmentTerms", "alignment_terms", "predicted_covariance"]


@dataclass(frozen=True)
class AlignmentTerms:
    r"""Equation 5 of Beaglehole et al. 2024 for the three traces of the early correlation.

    Each entry has the shape (3,): :math:`\operatorname{tr} PQ`, :math:`\operatorname{tr} P^2`, :math:`\operatorname{tr} Q^2`.

    Attributes
    ----------
    total
        The mean over networks.
    mean
        :math:`\operatorname{tr} E[P] E[Q]` and so on: what the expected kernels give.
    covariance
        :math:`\operatorname{tr} \operatorname{Cov}(P, Q)` and so on, unbiased; total = mean + covariance.
    error
        Standard error of the covariance, by leaving out one network at a time.
    """

    total: Tensor
    mean: Tensor
    covariance: Tensor
    error: Tensor

    @property
    def share(self) -> Tensor:
        """The covariance's part of the total, shape (3,): small where the mean kernel decides the correlation."""
        return self.covariance / self.total


def alignment_terms(
    build: Callable[[int], nn.Module], x: Tensor, y: Tensor, nets: int, layer: str = "0"
) -> AlignmentTerms:
    r"""Split the expected traces of the early correlation into mean and covariance over random networks.

    .. math:: E \operatorname{tr} PQ = \operatorname{tr} E[P] E[Q] + \operatorname{tr} \operatorname{Cov}(P, Q), \qquad
              P = X^T Y \kappa Y X, \quad Q = X^T Y \kappa^2 Y X

    with :math:`\kappa` the pre-activation tangent kernel of a layer that reads the inputs, at zero output (Beaglehole et al.
    2024, equation 5, and its like for the two factors of the denominator).

    Parameters
    ----------
    build
        Makes the random network of a number.
    x, y
        Data, shape (n, d), and labels, shape (n,).
    nets
        Number of networks, at least 3.
    layer
        Path of the layer, which must read the inputs.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> def build(number):
    ...     torch.manual_seed(number)
    ...     return nn.Sequential(nn.Linear(3, 64, bias=False), nn.ReLU(), nn.Linear(64, 1, bias=False)).double()
    >>> x = torch.randn(10, 3, dtype=torch.float64)
    >>> found = alignment_terms(build, x, x[:, 0], nets=20)
    >>> torch.allclose(found.total, found.mean + found.covariance), bool((found.share.abs() < 1).all())
    (True, True)
    """
    check_integer("nets", nets, 3)
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise InputError(f"x must have shape (n, d) and y (n,). Got {tuple(x.shape)} and {tuple(y.shape)}.")
    scaled = x * y[:, None]
    pairs = []
    for number in range(nets):
        kernel = ptk(build(number), x, layers=[layer])[layer].to(x)
        half = kernel @ scaled
        pairs.append((scaled.T @ half, half.T @ half))
    P, Q = (torch.stack(one) for one in zip(*pairs, strict=True))
    total, covariance = _terms(P, Q)
    parts = torch.stack([_terms(*(torch.cat([one[:i], one[i + 1 :]]) for one in (P, Q)))[1] for i in range(nets)])
    error = ((parts - parts.mean(0)).square().sum(0) * (nets - 1) / nets).sqrt()
    return AlignmentTerms(total, total - covariance, covariance, error)


def _terms(P: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means of the three traces over networks, and the unbiased traces of covariances; P, Q of shape (nets, d, d)."""
    m = len(P)
    factors = ((P, Q), (P, P), (Q, Q))
    total = torch.stack([(a * b).sum((1, 2)).mean() for a, b in factors])
    product = torch.stack([(a.mean(0) * b.mean(0)).sum() for a, b in factors])
    return total, (total - product) * m / (m - 1)


def predicted_covariance(x: Tensor, y: Tensor, width: int) -> float:
    r"""Return the covariance's share of :math:`E \operatorname{tr} PQ` for the quadratic network, in closed form.

    The total is that of :func:`predict_alignment` (free probability, hence a limit), the mean that of
    :func:`expected_derivatives` (exact): :math:`1 - \operatorname{tr} E[P] E[Q] / E \operatorname{tr} PQ`. It falls as the
    network becomes wider than the data's dimension.

    Parameters
    ----------
    x, y
        Data, shape (n, d), and labels, shape (n,).
    width
        k.

    Examples
    --------
    >>> import torch
    >>> x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> narrow, wide = (predicted_covariance(x, x[:, 0] * x[:, 1], width) for width in (16, 10_000))
    >>> 1 > narrow > 10 * wide > 0
    True
    """
    P, Q = expected_derivatives(x, y, width)
    return 1 - float((P * Q).sum()) / (x.shape[1] * predict_alignment(x, y, width=width).numerator)
