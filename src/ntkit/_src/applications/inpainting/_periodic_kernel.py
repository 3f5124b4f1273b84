"""The kernel between pixels of the encoder-decoder with nearest up-sampling, without a torus."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import Rectified
from ntkit._src.rules.expectations import dual
from ntkit._src.trace import W_STD

__all__ = ["periodic_kernel"]

_LEAKY = Rectified(0.01, 1.0)  # nn.LeakyReLU()


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
            covariance, beyond = _convolve(covariance), W_STD**2 * beyond
            tangent, tangent_beyond = _convolve(tangent).add_(covariance), W_STD**2 * tangent_beyond + beyond
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
    value, slope = dual(_LEAKY, k, variance, variance, tangent=True)
    assert slope is not None
    return value, slope


def _convolve(table: Tensor) -> Tensor:
    """Average over windows of 3 x 3 pixels, which wrap around with the period."""
    for axis in (0, 1):
        window = table.roll(1, axis)
        window += table
        window += table.roll(-1, axis)
        table = window
    return table.mul_(W_STD**2 / 9)


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
