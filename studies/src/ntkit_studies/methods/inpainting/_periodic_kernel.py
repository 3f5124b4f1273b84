"""The kernel between pixels of the encoder-decoder with nearest up-sampling, without a torus."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["periodic_kernel"]

_SLOPE = 0.01  # of nn.LeakyReLU() below zero
_GAIN = 2.0  # the squared gain of a module without one of its own


def periodic_kernel(levels: int, last_convolution: bool, same: float, other: float) -> tuple[Tensor, float]:
    r"""Give the tangent kernel of :func:`encoder_decoder` on stationary noise by residues and offsets, and its constant.

    Convolutions and activations keep the offset of two pixels. In the encoder only pixels that coincide differ from the
    rest, so that four numbers say everything. Each up-sampling doubles the period :math:`p` of the kernel and its reach: new
    pixel i reads old pixel :math:`\lfloor i / 2 \rfloor`. All pixels have one variance throughout. A table of
    :math:`p^2 (2 p - 1)^2` entries is a quarter of the smallest torus that has them all, and nothing else of its size but the
    covariance and temporaries is held: six levels need 3 GB instead of 30.

    Parameters
    ----------
    levels
        Of the network.
    last_convolution
        Whether it ends in LeakyReLU and one more convolution.
    same, other
        The prior: variance of a pixel and covariance of two.

    Returns
    -------
    tuple
        Shape (p, p, 2 p - 1, 2 p - 1) for p = 2^levels, the offset zero in the middle, float64; and the value at longer offsets.
    """
    covariance, beyond = torch.full((1, 1, 1, 1), same, dtype=torch.float64), other
    tangent, tangent_beyond = torch.zeros_like(covariance), 0.0
    steps = ["convolution", "activation"] * (levels + 1) + ["up", "convolution", "activation"] * levels
    for step in [*steps, "convolution"] if last_convolution else steps[:-1]:
        if step == "up":
            covariance, tangent = _upsample(covariance, beyond), _upsample(tangent, tangent_beyond)
        elif step == "convolution":
            covariance, beyond = _convolve(covariance), _GAIN * beyond
            tangent, tangent_beyond = _convolve(tangent).add_(covariance), _GAIN * tangent_beyond + beyond
        else:
            middle = covariance.shape[2] // 2
            variance = covariance[0, 0, middle, middle].clone()
            far, slope = _expectations(torch.tensor([beyond], dtype=torch.float64), variance)
            beyond, tangent_beyond = float(far), tangent_beyond * float(slope)
            for row in range(len(covariance)):  # a row of residues at a time: the expectations need many temporaries
                covariance[row], slopes = _expectations(covariance[row], variance)
                tangent[row] *= slopes
    return tangent, tangent_beyond


def _expectations(k: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return E[phi phi] and E[phi' phi'] of LeakyReLU, phi(x) = a x + b |x|, for two pixels of the same variance."""
    a, b = (1 + _SLOPE) / 2, (1 - _SLOPE) / 2
    rho = (k / variance).clamp(-1, 1)
    cosine = ((1 - rho) * (1 + rho)).sqrt()
    angle = torch.atan2(rho, cosine)  # asin rho, accurate near one
    value = a**2 * k + b**2 * 2 / math.pi * variance * (cosine + rho * angle)
    return value, a**2 + b**2 * 2 / math.pi * angle


def _convolve(table: Tensor) -> Tensor:
    """Average over windows of 3 x 3 pixels, which wrap around with the period."""
    for axis in (0, 1):
        window = table.roll(1, axis)
        window += table
        window += table.roll(-1, axis)
        table = window
    return table.mul_(_GAIN / 9)


def _upsample(table: Tensor, beyond: float) -> Tensor:
    """Repeat every pixel along both axes."""
    period = len(table)
    padded = torch.nn.functional.pad(table, (1, 1, 1, 1), value=beyond)
    residues = torch.arange(2 * period)
    offsets = torch.arange(1 - 2 * period, 2 * period)
    source = (residues[:, None] + offsets).div(2, rounding_mode="floor") - residues[:, None] // 2 + period
    old = residues // 2
    return padded[
        old[:, None, None, None], old[None, :, None, None], source[:, None, :, None], source[None, :, None, :]
    ]
