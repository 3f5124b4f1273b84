"""The networks for inpainting: down-sampling by every second pixel, up-sampling by interpolation, all on a torus."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from ntkit.errors import InputError

from ..._seeded import seeded

__all__ = ["Upsampling", "encoder_decoder"]

Upsampling = Literal["nearest", "bilinear"]
_WIDTH = 4  # the limit does not depend on it


class EverySecond(nn.Module):
    """Keeps every second pixel of each axis."""

    def forward(self, x: Tensor) -> Tensor:
        """Select every second pixel."""
        return x[:, :, ::2, ::2]


class CircularBilinear(nn.Module):
    """Bilinear up-sampling by two that wraps around at the borders."""

    def __init__(self) -> None:
        super().__init__()
        self.pad, self.up = nn.CircularPad2d(1), nn.Upsample(scale_factor=2, mode="bilinear")

    def forward(self, x: Tensor) -> Tensor:
        """Interpolate the padded image and remove the padding."""
        larger: Tensor = self.up(self.pad(x))
        return larger[:, :, 2:-2, 2:-2]


def encoder_decoder(
    levels: int = 3, upsampling: Upsampling = "nearest", channels: int = 1, last_convolution: bool = False
) -> nn.Module:
    """Build the encoder-decoder of Radhakrishnan et al. 2021 for inpainting, one output channel.

    (3x3 circular convolution, LeakyReLU, every second pixel) ``levels`` times; convolution, LeakyReLU; (up-sampling,
    convolution, LeakyReLU) ``levels`` times, without the last LeakyReLU. No biases.

    Parameters
    ----------
    levels
        Number of times the image is halved; at least 1. Radhakrishnan et al. also use 6. Default 3.
    upsampling
        ``"nearest"`` or ``"bilinear"``, which wraps around like the convolutions. Default ``"nearest"``.
    channels
        Of the input. Default 1.
    last_convolution
        Whether the last LeakyReLU is kept and one more convolution follows it. Only with nearest up-sampling has the kernel an
        expansion then: with bilinear that of distant pixels depends on where they are. Default False.

    Examples
    --------
    >>> import torch
    >>> encoder_decoder(2)(torch.randn(1, 1, 8, 8)).shape
    torch.Size([1, 1, 8, 8])
    """
    if isinstance(levels, bool) or not isinstance(levels, int) or levels < 1:
        raise InputError(f"levels must be a positive whole number. Got {levels!r}.")
    if upsampling not in ("nearest", "bilinear"):
        raise InputError(f'upsampling must be "nearest" or "bilinear". Got {upsampling!r}.')
    layers: list[nn.Module] = []
    with seeded(0):  # its weights are never used
        for level in range(levels):
            layers += [_convolution(_WIDTH if level else channels, _WIDTH), nn.LeakyReLU(), EverySecond()]
        layers += [_convolution(_WIDTH, _WIDTH), nn.LeakyReLU()]
        for _ in range(levels):
            layers.append(nn.Upsample(scale_factor=2) if upsampling == "nearest" else CircularBilinear())
            layers += [_convolution(_WIDTH, _WIDTH), nn.LeakyReLU()]
        if last_convolution:
            layers.append(_convolution(_WIDTH, 1))
        else:
            layers[-2:] = [_convolution(_WIDTH, 1)]
    return nn.Sequential(*layers)


def _convolution(before: int, after: int) -> nn.Module:
    return nn.Conv2d(before, after, 3, padding=1, padding_mode="circular", bias=False)
