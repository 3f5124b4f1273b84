"""The early correlation of wide quadratic networks, predicted from the data alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError
from ntkit.extending import check_batches, check_integer

__all__ = ["AlignmentPrediction", "expected_derivatives", "limit_moments", "predict_alignment", "sampled_moments"]


@dataclass(frozen=True)
class AlignmentPrediction:
    r"""Predictions of free probability for P and Q of the first layer, up to one constant each.

    Attributes
    ----------
    numerator
        :math:`\operatorname{tr}(P Q)`, equation 19.
    first
        :math:`\operatorname{tr}(P^2)`, equation 21.
    second
        :math:`\operatorname{tr}(Q^2)`, equation 27, corrected.
    rho
        numerator / sqrt(first second).
    moments
        :math:`\operatorname{tr} R^p` for p = 1 to 4.
    """

    numerator: float
    first: float
    second: float
    rho: float
    moments: tuple[float, float, float, float]


def predict_alignment(
    x: Tensor,
    y: Tensor,
    moments: Literal["limit", "sampled"] | tuple[float, float, float, float] = "limit",
    width: int | None = None,
    nets: int = 30,
    generator: torch.Generator | None = None,
) -> AlignmentPrediction:
    r"""Predict the early correlation :math:`\rho(P, Q)` of the quadratic network :math:`f = a^T (Wx)^2` from its data.

    There :math:`P \propto C R C` and :math:`Q \propto C R B R C` with :math:`C = X^T Y X`, :math:`B = X^T X`, and
    :math:`R = W^T \operatorname{diag}(a^2) W` (:func:`early_alignment`, at zero output). With :math:`A = C^2`, traces divided
    by the dimension, :math:`r_p = \operatorname{tr} R^p`, and :math:`\bar A = A - \operatorname{tr} A`:

    .. math::
        \operatorname{tr} P Q &= t_A^2 t_B r_3 + 2 t_A r_1 r_2 \operatorname{tr} \bar A \bar B
            + t_B r_1 r_2 \operatorname{tr} \bar A^2 + r_1^3 \operatorname{tr} \bar A^2 \bar B \\
        \operatorname{tr} P^2 &= r_1^2 \operatorname{tr} A^2 + t_A^2 (r_2 - r_1^2) \\
        \operatorname{tr} Q^2 &= r_1^4 \operatorname{tr} (\bar A \bar B)^2
            + 2 r_1^2 (r_2 - r_1^2) (\operatorname{tr} \bar A \bar B)^2
            + 2 r_1^2 r_2 (t_B \operatorname{tr} \bar A^2 \bar B + t_A \operatorname{tr} \bar A \bar B^2) \\
            &\quad + 4 t_A t_B r_1 r_3 \operatorname{tr} \bar A \bar B + t_A^2 t_B^2 r_4
            + t_A^2 r_2^2 \operatorname{tr} \bar B^2 + t_B^2 r_2^2 \operatorname{tr} \bar A^2

    (Beaglehole et al. 2024, appendix E, equations 19, 21 and 27; the last term is misprinted there.) The assumptions are the
    paper's: (9) the traces are self-averaging over networks; (10) the data {X, Y} and the weights {W, a} are asymptotically
    free; (11) expectation commutes with the ratio and the root. On data with one outlier in A and one in B the last one fails:
    rho is near 1 in every network, but the ratio of expectations is not.

    Parameters
    ----------
    x, y
        Data, shape (n, d), and labels, shape (n,), float64 or float32.
    moments
        ``"limit"``: :math:`r_p` of wide networks in closed form. R is free compound Poisson, with free cumulants
        :math:`\frac{k}{d} E[(a^2 \sigma^2 d)^p]`, :math:`\sigma^2 = 1/k` the variance of a weight and a standard normal.
        ``"sampled"``: means over random networks. Or the four numbers themselves, such as ``prediction.moments`` of an earlier
        call.
    width
        k; None: d, as in the paper.
    nets, generator
        Number of networks and their generator, for ``"sampled"``.

    Returns
    -------
    AlignmentPrediction

    See Also
    --------
    early_alignment : the correlation of one network.
    expected_derivatives : the expectations of P and Q themselves.

    Examples
    --------
    >>> import torch
    >>> x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> found = predict_alignment(x, x[:, 0] * x[:, 1])
    >>> found.moments, 0 < found.rho < 1
    ((1.0, 4.0, 25.0, 202.0), True)
    """
    C, B = _products(x, y)
    d = len(B)
    k = d if width is None else check_integer("width", width, 1)
    if moments == "limit":
        r = limit_moments(k / d)
    elif moments == "sampled":
        r = sampled_moments(k, d, nets, generator)
    elif isinstance(moments, tuple) and len(moments) == 4:
        r = moments
    else:
        raise InputError(f'moments must be "limit", "sampled" or four numbers. Got {moments!r}.')
    return predict_from_moments(C @ C, B, r)


def predict_from_moments(A: Tensor, B: Tensor, r: tuple[float, float, float, float]) -> AlignmentPrediction:
    """Evaluate the three traces for A and B, shape (d, d), and the moments of R."""
    d = len(A)
    r1, r2, r3, r4 = r
    tA, tB = float(A.trace()) / d, float(B.trace()) / d
    eye = torch.eye(d, dtype=A.dtype, device=A.device)
    a, b = A - tA * eye, B - tB * eye
    ab = a @ b
    t_aa, t_bb, t_ab = _trace(a, a), _trace(b, b), float(ab.trace()) / d
    t_aab, t_abb, t_abab = _trace(ab, a), _trace(ab, b), _trace(ab, ab)
    numerator = tA**2 * tB * r3 + 2 * tA * r1 * r2 * t_ab + tB * r1 * r2 * t_aa + r1**3 * t_aab
    first = _trace(A, A) * r1**2 + tA**2 * (r2 - r1**2)
    second = (
        r1**4 * t_abab
        + 2 * r1**2 * (r2 - r1**2) * t_ab**2
        + 2 * r1**2 * r2 * (tB * t_aab + tA * t_abb)
        + 4 * tA * tB * r1 * r3 * t_ab
        + tA**2 * tB**2 * r4
        + tA**2 * t_bb * r2**2
        + tB**2 * t_aa * r2**2
    )
    rho = numerator / math.sqrt(first * second) if first > 0 and second > 0 else math.nan
    return AlignmentPrediction(numerator, first, second, rho, r)


def limit_moments(ratio: float) -> tuple[float, float, float, float]:
    """Return tr R^p, p = 1 to 4, of infinitely wide networks with k / d = ratio: moments from free cumulants.

    Examples
    --------
    >>> limit_moments(1.0)
    (1.0, 4.0, 25.0, 202.0)
    """
    # E[a^(2p)] = 1, 3, 15, 105 for a standard normal, and sigma^2 d = d / k.
    c1, c2, c3, c4 = (ratio * odd / ratio**p for p, odd in enumerate((1, 3, 15, 105), start=1))
    return (
        c1,
        c2 + c1**2,
        c3 + 3 * c1 * c2 + c1**3,
        c4 + 4 * c1 * c3 + 2 * c2**2 + 6 * c1**2 * c2 + c1**4,
    )


def sampled_moments(
    width: int, d: int, nets: int, generator: torch.Generator | None
) -> tuple[float, float, float, float]:
    """Return the means of tr R^p, p = 1 to 4, over random networks."""
    check_integer("nets", nets, 1)
    if not isinstance(generator, torch.Generator):
        raise InputTypeError(
            'moments="sampled" draws networks: it needs a generator. Write generator=torch.Generator().manual_seed(0).'
        )
    sums = [0.0] * 4
    for _ in range(nets):
        weight = torch.randn(width, d, generator=generator, dtype=torch.float64) / width**0.5
        readout = torch.randn(width, generator=generator, dtype=torch.float64)
        scaled = weight * readout[:, None]
        R = scaled.T @ scaled if d <= width else scaled @ scaled.T  # the same nonzero eigenvalues
        square = R @ R
        for p, value in enumerate((float(R.trace()), _sum(R, R), _sum(square, R), _sum(square, square))):
            sums[p] += value / d / nets
    return sums[0], sums[1], sums[2], sums[3]


def expected_derivatives(x: Tensor, y: Tensor, width: int) -> tuple[Tensor, Tensor]:
    r"""Return the expectations of P and Q of the quadratic network :math:`f = a^T (Wx)^2` over its random weights.

    With :math:`a \sim N(0, 1)`, :math:`W_{ij} \sim N(0, 1/k)`, at zero output, and the factors 4 and 16 of the derivative of the
    square left out,

    .. math:: E[P] = C^2, \qquad
        E[Q] = C \bigl((1 + \tfrac5k) X^T X + \tfrac3k \operatorname{tr}(X^T X) I\bigr) C, \qquad C = X^T Y X

    (Beaglehole et al. 2024, Proposition 12, which as printed lacks the pairs of different neurons and a 1/k).

    Parameters
    ----------
    x, y
        Data, shape (n, d), and labels, shape (n,).
    width
        k.

    Returns
    -------
    tuple
        E[P] and E[Q], each of shape (d, d).

    Examples
    --------
    >>> import torch
    >>> x, y = torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    >>> expected_derivatives(x, y, width=1)[1]
    tensor([[12.,  0.],
            [ 0., 12.]], dtype=torch.float64)
    """
    C, B = _products(x, y)
    k = check_integer("width", width, 1)
    eye = torch.eye(len(B), dtype=B.dtype, device=B.device)
    return C @ C, C @ ((1 + 5 / k) * B + 3 / k * B.trace() * eye) @ C


def _products(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return X^T Y X and X^T X."""
    check_batches(x, None)
    if x.ndim != 2:
        raise InputError(f"x must have shape (n, d). Got {tuple(x.shape)}.")
    if not isinstance(y, Tensor):
        raise InputTypeError(f"y must be a torch.Tensor. Got {type(y).__name__}.")
    if y.shape != x.shape[:1]:
        raise InputError(f"y must have shape ({len(x)},), one label for each row of x. Got {tuple(y.shape)}.")
    if y.dtype != x.dtype or y.device != x.device:
        raise InputTypeError(
            f"y must have the dtype and device of x, {x.dtype} on {x.device}. Got {y.dtype} on {y.device}: write y.to(x)."
        )
    if not bool(torch.isfinite(y).all()):
        raise InputError("y must be finite. Got NaN or infinite labels.")
    return (x.T * y) @ x, x.T @ x


def _trace(a: Tensor, b: Tensor) -> float:
    """Return tr(a b) divided by the dimension."""
    return _sum(a, b.T) / len(a)


def _sum(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())
