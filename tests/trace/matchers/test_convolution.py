"""Transposed convolutions against the sum over taps written out."""

import pytest
import torch
from tests.cases import normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import UnsupportedLayerError

# kernel, stride, padding, output padding, dilation
OPTIONS = [
    (2, 2, 0, 0, 1),
    (3, 2, 0, 0, 1),
    (4, 2, 1, 0, 1),
    (3, 1, 1, 0, 1),
    (5, 3, 0, 0, 1),
    (3, 2, 1, 1, 1),
    (3, 2, 3, 1, 1),
    (3, 2, 4, 1, 1),
    (2, 3, 0, 2, 2),
    (1, 2, 0, 1, 1),
]


def dense(k, kernel, stride, padding, output_padding, dilation):
    """K'[q, q'] = 1/k sum over r of K[p, p'] with p s - pad + d r = q, p' s - pad + d r = q', in a loop."""
    size = k.shape[-1]
    length = (size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1
    out = torch.zeros(*k.shape[:-2], length, length, dtype=k.dtype)
    for r in range(kernel):
        for p in range(size):
            for p2 in range(size):
                q, q2 = (place * stride - padding + dilation * r for place in (p, p2))
                if 0 <= q < length and 0 <= q2 < length:
                    out[..., q, q2] += k[..., p, p2] / kernel
    return out


@pytest.mark.parametrize("options", OPTIONS)
def test_sum_over_taps(options):
    kernel, stride, padding, output_padding, dilation = options
    x = normal(3, 1, 6)
    first = nn.Conv1d(1, 4, 3, padding=1)
    layer = nn.ConvTranspose1d(4, 3, kernel, stride, padding, output_padding, dilation=dilation)
    before = ntkit.infinite_width(nn.Sequential(first, nn.ReLU()), b_std=0.2)
    after = ntkit.infinite_width(nn.Sequential(first, nn.ReLU(), layer), b_std=0.2)
    k, theta = before.nngp.positions(x), before.ntk.positions(x)
    torch.testing.assert_close(after.nngp.positions(x), 2 * dense(k, *options) + 0.04, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(after.ntk.positions(x), 2 * dense(k + theta, *options) + 0.04, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_axes_and_groups(ndim):
    conv, transposed = (
        (nn.Conv1d, nn.ConvTranspose1d),
        (nn.Conv2d, nn.ConvTranspose2d),
        (nn.Conv3d, nn.ConvTranspose3d),
    )[ndim - 1]
    x = normal(2, 1, *(3, 4, 2)[:ndim])
    options = {"stride": (2, 1, 2)[:ndim], "padding": (1, 0, 1)[:ndim], "output_padding": (1, 0, 0)[:ndim]}
    whole, groups = (
        ntkit.infinite_width(
            nn.Sequential(
                conv(1, 4, 1), nn.ReLU(), transposed(4, 6, (3, 2, 3)[:ndim], groups=g, **options), conv(6, 1, 1)
            )
        ).ntk.positions(x)
        for g in (1, 2)
    )
    torch.testing.assert_close(whole, groups, rtol=1e-14, atol=0)


def test_on_data_by_function_and_with_output_size():
    class Direct(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(2, 4, 3)), nn.Parameter(torch.randn(4))
            self.last = nn.Conv1d(4, 1, 1)

        def forward(self, x):
            return self.last(torch.relu(F.conv_transpose1d(x, self.weight, self.bias, 2, 1, 1)))

    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.last = nn.ConvTranspose1d(2, 4, 3, 2, 1), nn.Conv1d(4, 1, 1)

        def forward(self, x):
            return self.last(torch.relu(self.up(x, output_size=[10])))

    x = normal(2, 2, 5)
    plain = nn.Sequential(nn.ConvTranspose1d(2, 4, 3, 2, 1, 1), nn.ReLU(), nn.Conv1d(4, 1, 1))
    expected = ntkit.infinite_width(plain).ntk.positions(x)
    for net in (Direct(), Sized()):
        torch.testing.assert_close(ntkit.infinite_width(net).ntk.positions(x), expected, rtol=1e-14, atol=0)


def test_torch_initialisation_takes_the_fan_of_the_output():
    """PyTorch draws with variance 1 / (3 out k), and K' sums over in k terms."""
    x = normal(2, 1, 4)
    first = nn.Conv1d(1, 8, 1, bias=False)
    before = ntkit.infinite_width(first, init="torch").nngp.positions(x)
    for out in (2, 8, 32):
        net = nn.Sequential(first, nn.ConvTranspose1d(8, out, 2, 2))
        found = ntkit.infinite_width(net, init="torch").nngp.positions(x)
        expected = 8 / (3 * out) * dense(before, 2, 2, 0, 0, 1) + 1 / (3 * out * 2)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)


def test_gradient_in_the_gain():
    net = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.ConvTranspose1d(4, 4, 3, 2), nn.ReLU(), nn.Conv1d(4, 1, 1))
    x = normal(2, 1, 5)
    gain = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda g: ntkit.infinite_width(net, w_std=g).ntk(x), gain)


def test_refusals():
    depthwise = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.ConvTranspose1d(4, 4, 3, groups=4), nn.Conv1d(4, 1, 1))
    with pytest.raises(UnsupportedLayerError, match="2: ConvTranspose1d: a depthwise convolution"):
        ntkit.infinite_width(depthwise)
    raw = nn.Sequential(nn.ConvTranspose1d(4, 8, 3, groups=2), nn.ReLU(), nn.Conv1d(8, 1, 1))
    with pytest.raises(UnsupportedLayerError, match="0: ConvTranspose1d: a grouped convolution on raw channels"):
        ntkit.infinite_width(raw)
    shuffled = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.PixelShuffle(2), nn.Conv2d(2, 1, 1))
    with pytest.raises(
        UnsupportedLayerError, match=r"2: PixelShuffle: it moves channels into positions(.|\n)*Upsample"
    ):
        ntkit.infinite_width(shuffled)


def test_pointwise_convolution_is_a_linear_layer_at_every_position():
    conv = nn.Sequential(nn.Conv1d(3, 8, 1), nn.ReLU(), nn.Conv1d(8, 8, 1), nn.Flatten(), nn.Linear(40, 1))
    linear = Lambda(
        lambda m, x: m.c(m.b(F.relu(m.a(x.transpose(1, 2)))).transpose(1, 2).flatten(1)),
        a=nn.Linear(3, 8), b=nn.Linear(8, 8), c=nn.Linear(40, 1),
    )  # fmt: skip
    same_kernels(conv, linear, normal(3, 3, 5), b_std=0.2)
