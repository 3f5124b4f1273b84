"""Kernels between positions of outputs: against golden values, dense loops, and the mean that a call gives."""

import pytest
import torch
from tests.cases import mlp, normal
from tests.kernels.golden_layers import assert_golden, golden
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError, InputTypeError, MemoryLimitError, UnsupportedLayerError


class EncoderDecoder(nn.Module):
    """(2, 8, 8) to (1, 8, 8); the strided convolution pads on the right only."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(2, 4, 3, 2, bias=False)
        self.middle = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.up = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.last = nn.Conv2d(4, 1, 3, padding=1, bias=False)

    def forward(self, x):
        h = torch.relu(self.down(F.pad(x, (0, 1, 0, 1))))
        h = F.interpolate(torch.relu(self.middle(h)), scale_factor=2)
        return self.last(torch.relu(self.up(h)))


def encoder_decoder():
    return ntkit.infinite_width(EncoderDecoder(), overrides={"last": {"w_std": 1.0}})


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_golden(which):
    arrays = golden("autoencoder_nearest_pos")
    kernel = getattr(encoder_decoder(), which)
    found = kernel.positions(arrays["x1"], arrays["x2"])
    assert_golden(found, arrays[which].permute(0, 1, 2, 4, 3, 5))


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_mean_over_positions_is_the_call(which):
    x1, x2 = normal(2, 2, 8, 8), normal(3, 2, 8, 8, seed=1)
    kernel = getattr(encoder_decoder(), which)
    every = kernel.positions(x1, x2)
    assert every.shape == (2, 3, 8, 8, 8, 8)
    torch.testing.assert_close(torch.einsum("abijij->ab", every) / 64, kernel(x1, x2), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("which", ["nngp", "ntk"])
def test_one_batch_with_itself(which):
    x = normal(3, 2, 8, 8)
    kernel = getattr(encoder_decoder(), which)
    own = kernel.positions(x)
    torch.testing.assert_close(own, kernel.positions(x, x.clone()), rtol=1e-12, atol=1e-14)
    assert torch.equal(own, own.permute(1, 0, 4, 5, 2, 3))
    gram = own.permute(0, 2, 3, 1, 4, 5).reshape(192, 192)
    eigenvalues = torch.linalg.eigvalsh(gram)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]


def test_chosen_positions():
    x1, x2 = normal(2, 2, 8, 8), normal(3, 2, 8, 8, seed=1)
    kernel = encoder_decoder().ntk
    at = [(0, 3), (7, 1), (2, 2), (0, 3)]
    rows, columns = torch.tensor(at).T
    every = kernel.positions(x1, x2)[:, :, rows, columns][:, :, :, rows, columns]
    for chosen in (at, torch.tensor(at)):
        torch.testing.assert_close(kernel.positions(x1, x2, at=chosen), every, rtol=1e-14, atol=0)


def test_inputs_one_at_a_time_change_nothing():
    x = normal(3, 2, 8, 8)
    kernel = encoder_decoder().ntk
    every = kernel.positions(x)
    for i in range(3):
        torch.testing.assert_close(kernel.positions(x[i : i + 1], x)[0], every[i], rtol=1e-13, atol=1e-15)


LAYOUTS = {
    "channels last": (lambda h: h.movedim(1, -1), (4, 6), (0, 1)),
    "axes exchanged": (lambda h: h.transpose(2, 3), (6, 4), (1, 0)),
    "axes merged": (lambda h: h.flatten(2), (24,), None),
    "channel squeezed": (lambda h: h[:, :1].mean(1) if h.shape[1] > 1 else h.squeeze(1), (4, 6), (0, 1)),
}


class Laid(nn.Module):
    def __init__(self, layout, width):
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, width, 1)
        self.layout = layout

    def forward(self, x):
        return self.layout(self.last(torch.relu(self.first(x))))


@pytest.mark.parametrize("name", LAYOUTS)
def test_follows_the_dimensions_of_the_output(name):
    layout, shape, order = LAYOUTS[name]
    x = normal(2, 1, 4, 6)
    width = 1 if name == "channel squeezed" else 3
    plain = ntkit.infinite_width(Laid(lambda h: h, width), b_std=0.2).ntk.positions(x)
    found = ntkit.infinite_width(Laid(layout, width), b_std=0.2).ntk.positions(x)
    if order is None:
        plain = plain.reshape(2, 2, 24, 24)
    else:
        plain = plain.permute(0, 1, *(2 + axis for axis in order), *(4 + axis for axis in order))
    assert found.shape == (2, 2, *shape, *shape)
    torch.testing.assert_close(found, plain, rtol=1e-13, atol=0)


def test_merged_axes_are_chosen_by_one_integer():
    x = normal(2, 1, 4, 6)
    kernel = ntkit.infinite_width(Laid(lambda h: h.flatten(2), 3)).nngp
    at = [23, 0, 7]
    torch.testing.assert_close(kernel.positions(x, at=at), kernel.positions(x)[:, :, at][..., at], rtol=1e-14, atol=0)


def test_output_without_positions():
    net = mlp(3, 8, 1)
    x = normal(4, 3)
    limit = ntkit.infinite_width(net)
    torch.testing.assert_close(limit.ntk.positions(x), limit.ntk(x), rtol=1e-14, atol=0)
    with pytest.raises(InputError, match="has none"):
        limit.ntk.positions(x, at=[0])


def test_nothing_trained():
    net = nn.Sequential(nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 1, 1)).requires_grad_(False)
    assert not ntkit.infinite_width(net).ntk.positions(normal(2, 1, 5)).any()


def test_gradients():
    x = normal(2, 2, 8, 8).requires_grad_(True)
    kernel = encoder_decoder().ntk
    at = [(0, 0), (4, 3)]
    (gradient,) = torch.autograd.grad(kernel.positions(x, at=at).sum(), x)
    direction = normal(2, 2, 8, 8, seed=2)
    with torch.no_grad():
        ends = [kernel.positions(x + sign * 1e-5 * direction, at=at).sum() for sign in (1, -1)]
    torch.testing.assert_close((gradient * direction).sum(), (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("at", "error", "words"),
    [
        ([(8, 0)], InputError, r"\(8, 0\), which is outside"),
        ([(-1, 0)], InputError, "outside"),
        ([0], InputError, "2 integers for each position"),
        ([], InputError, "at least one position"),
        ([(0.5, 1.0)], InputTypeError, "integers"),
        ("corner", InputTypeError, "positions of the output"),
    ],
)
def test_bad_positions(at, error, words):
    with pytest.raises(error, match=words):
        encoder_decoder().ntk.positions(normal(2, 2, 8, 8), at=at)


def test_more_than_memory():
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1))
    with pytest.raises(
        MemoryLimitError, match=r"positions of 4 pairs.*250,000,000,000 entries.*GB can be used here.*at=\[\.\.\.\]"
    ):
        ntkit.infinite_width(net).nngp.positions(torch.zeros(2, 1, 500, 500))


def test_sign_has_no_tangent_kernel():
    class Sign(nn.Module):
        def forward(self, x):
            return torch.sign(x)

    limit = ntkit.infinite_width(nn.Sequential(nn.Conv1d(1, 8, 3), Sign(), nn.Conv1d(8, 1, 1)))
    assert limit.nngp.positions(normal(2, 1, 5)).shape == (2, 2, 3, 3)
    with pytest.raises(UnsupportedLayerError, match="derivative"):
        limit.ntk.positions(normal(2, 1, 5))
    prior = limit.with_prior("stationary", input_shape=(1, 5))
    with pytest.raises(UnsupportedLayerError, match="derivative"):
        prior.ntk.positions()


def test_explain_says_that_the_call_is_a_mean():
    rows = encoder_decoder().explain((2, 8, 8)).rows
    assert rows[-1].operation == "mean over positions"


class Wide(nn.Module):
    """Skip connections, pooling and up-sampling, so that windows of several sizes meet."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 5, padding=2, dilation=1)
        self.norm = nn.RMSNorm(4)
        self.up = nn.ConvTranspose2d(4, 4, 4, 2, 1)
        self.last = nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x):
        h = self.first(x)
        h = h + self.second(torch.relu(h))
        h = self.norm(h.movedim(1, -1)).movedim(-1, 1)
        h = F.interpolate(F.avg_pool2d(torch.relu(h), 2), scale_factor=2, mode="bilinear")
        return self.last(torch.relu(self.up(h)))


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("at", [[(0, 0), (1, 2)], [(7, 9), (8, 8), (9, 10)], [(19, 23)], [(0, 23), (19, 0)]])
def test_windows_of_a_deep_network(at, which):
    x = normal(2, 2, 10, 12)
    kernel = getattr(ntkit.infinite_width(Wide(), b_std=0.2), which)
    rows, columns = torch.tensor(at).T
    every = kernel.positions(x)[:, :, rows, columns][:, :, :, rows, columns]
    torch.testing.assert_close(kernel.positions(x, at=at), every, rtol=1e-12, atol=1e-14)


def test_a_window_needs_little_memory():
    """All position pairs of images of 300 x 300 would take 65 GB; those around three pixels take little."""
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    limit, x = ntkit.infinite_width(net), normal(1, 1, 300, 300)
    at = [(150, 150), (151, 150), (151, 152)]
    found = limit.ntk.positions(x, at=at)
    small = limit.ntk.positions(x[:, :, 140:160, 140:160].contiguous(), at=[(i - 140, j - 140) for i, j in at])
    torch.testing.assert_close(found, small, rtol=1e-13, atol=0)
