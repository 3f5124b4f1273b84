"""The two convolutional networks of section 9 of Golikov et al. 2022, without what has no limit."""

from __future__ import annotations

from torch import Tensor, nn

from ._networks import blank

__all__ = ["myrtle", "resnet50"]


def myrtle(channels: int, width: int) -> nn.Module:
    """Give the Myrtle network, its weights zero: four 3x3 convolutions with ReLU, average pooling, a linear layer.

    Two pools of 2x2 stand after the second and the third convolution. The last pools, down to one pixel, are one global
    average here, which is the same function and takes images of any side that is a multiple of four.

    Parameters
    ----------
    channels
        Of the images.
    width
        Channels of every convolution; for a limit one serves.
    """

    def make() -> nn.Module:
        def conv(inputs: int) -> list[nn.Module]:
            return [_conv(inputs, width, 3), nn.ReLU()]

        return nn.Sequential(
            *conv(channels),
            *conv(width),
            nn.AvgPool2d(2),
            *conv(width),
            nn.AvgPool2d(2),
            *conv(width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 1, bias=False),
        )

    return blank(make)


def resnet50(channels: int, width: int) -> nn.Module:
    """Give ResNet-50 as the survey changes it, its weights zero: no batch normalisation, an average where it has a maximum pool.

    The rest is ResNet-50's: a 7x7 convolution and a 3x3 pool, both of stride two, then 16 blocks, so that images of 32 pixels
    have 8 in the first stage. The survey says no more than "a variant of Resnet50". One thing is ours: the blocks apply their
    activation before the convolutions (He et al. 2016b). With the activation after the sum, as in the first version, the sum is
    not Gaussian in the limit, and there is no closed form.

    Parameters
    ----------
    channels
        Of the images.
    width
        Channels of the first convolution, 64 in ResNet-50; for a limit one serves.
    """

    def make() -> nn.Module:
        layers: list[nn.Module] = [_conv(channels, width, 7, 2), nn.AvgPool2d(3, 2, 1)]
        inputs = width
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                inner = width * 2**stage
                layers.append(_Bottleneck(inputs, inner, 2 if stage and not block else 1))
                inputs = 4 * inner
        head = [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1, bias=False)]
        return nn.Sequential(*layers, *head)

    return blank(make)


class _Bottleneck(nn.Module):
    """A residual block: 1x1, 3x3 and 1x1 convolutions, each after a ReLU."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.layers = nn.Sequential(
            _conv(inputs, inner, 1),
            nn.ReLU(),
            _conv(inner, inner, 3, stride),
            nn.ReLU(),
            _conv(inner, 4 * inner, 1),
        )
        # Where the number of channels or the side changes, a convolution takes the place of the identity.
        same = stride == 1 and inputs == 4 * inner
        self.shortcut = None if same else _conv(inputs, 4 * inner, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = self.relu(x)
        moved: Tensor = self.layers(active)
        return moved + (x if self.shortcut is None else self.shortcut(active))


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
