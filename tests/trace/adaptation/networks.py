"""Small definitions of the networks that people bring: the blocks of their originals, with few channels and layers."""

import torch
from torch import nn
from torch.nn import functional as F


class BasicBlock(nn.Module):
    """Two convolutions, a shortcut, and the activation after the sum, in place."""

    def __init__(self, inputs, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride > 1 or inputs != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, which widen four times."""

    def __init__(self, inputs, channels, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, channels, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)
        self.conv3, self.bn3 = nn.Conv2d(channels, 4 * channels, 1, bias=False), nn.BatchNorm2d(4 * channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != 4 * channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, 4 * channels, 1, stride, bias=False), nn.BatchNorm2d(4 * channels)
            )

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out)) + identity
        return self.relu(out)


class ResNet(nn.Module):
    """A stem with max pooling, stages of blocks, global average pooling."""

    def __init__(self, block, stages, width=4, expansion=1):
        super().__init__()
        self.conv1, self.bn1, self.relu = (
            nn.Conv2d(3, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        blocks, inputs = [], width
        for stage, depth in enumerate(stages):
            for index in range(depth):
                channels = width * 2**stage
                blocks.append(block(inputs, channels, 2 if stage and not index else 1))
                inputs = channels * expansion
        self.layers = nn.Sequential(*blocks)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inputs, 10)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


def resnet18():
    return ResNet(BasicBlock, (2, 2))


def resnet50():
    return ResNet(Bottleneck, (2, 2), expansion=4)


def vgg11(batch_norm=True):
    layers, inputs = [], 3
    for width in (4, "M", 8, "M", 8, 8, "M"):
        if width == "M":
            layers.append(nn.MaxPool2d(2, 2))
        else:
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            inputs = width
    head = [nn.Flatten(), nn.Linear(32, 16), nn.ReLU(True), nn.Dropout(0.5), nn.Linear(16, 10)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((2, 2)), *head)


class InvertedResidual(nn.Module):
    """Widen, depthwise convolution, narrow; the shortcut joins values that are not activated."""

    def __init__(self, inputs, channels, stride):
        super().__init__()
        hidden = 2 * inputs
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.shortcut = stride == 1 and inputs == channels

    def forward(self, x):
        return x + self.conv(x) if self.shortcut else self.conv(x)


def mobilenet_v2():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU6(True),
        InvertedResidual(4, 6, 1), InvertedResidual(6, 6, 1), InvertedResidual(6, 8, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(8, 10),
    )  # fmt: skip


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class StochasticDepth(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return x * torch.bernoulli(torch.full((len(x), 1, 1, 1), 1 - self.p)) if self.training else x


class ConvNeXtBlock(nn.Module):
    """A 7x7 depthwise convolution, layer norm, two linear layers at each position, layer scale, stochastic depth."""

    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.gelu, self.narrow = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.layer_scale = nn.Parameter(1e-6 * torch.ones(width, 1, 1))
        self.stochastic_depth = StochasticDepth(0.1)

    def forward(self, x):
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        out = self.narrow(self.gelu(self.wide(out))).permute(0, 3, 1, 2)
        return x + self.stochastic_depth(self.layer_scale * out)


def convnext_tiny():
    return nn.Sequential(
        nn.Conv2d(3, 4, 4, 4), LayerNorm2d(4), ConvNeXtBlock(4), LayerNorm2d(4), nn.Conv2d(4, 8, 2, 2), ConvNeXtBlock(8),
        nn.AdaptiveAvgPool2d(1), LayerNorm2d(8), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip


class ViT(nn.Module):
    """Patches, a class token, positions, one encoder block with softmax attention."""

    def __init__(self, width=8):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 17, width))
        self.norm1, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head((x + self.mlp(self.norm2(x)))[:, 0])


class SqueezeExcite(nn.Module):
    """A convolution whose channels are weighted by what their averages say."""

    def __init__(self, width):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, width, 3, padding=1), nn.AdaptiveAvgPool2d(1)
        self.down, self.up, self.head = nn.Conv2d(width, 4, 1), nn.Conv2d(4, width, 1), nn.Linear(width, 10)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        return self.head((x * torch.sigmoid(self.up(torch.relu(self.down(self.pool(x)))))).mean((2, 3)))
