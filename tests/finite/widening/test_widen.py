"""A widened network must have the shapes of the one that its constructor builds at the larger width."""

from __future__ import annotations

import pytest
import torch
from tests.cases import mlp
from tests.rules.every_family import LAYERS
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError, InputTypeError


def shapes(module):
    return {name: tuple(p.shape) for name, p in (*module.named_parameters(), *module.named_buffers())}


@pytest.mark.parametrize("family", LAYERS)
def test_every_supported_family(family):
    case = LAYERS[family]()
    net = case.module(16)
    wide = ntkit.widen(net, 4, example=case.inputs(), generator=torch.Generator().manual_seed(0))
    assert shapes(wide) == shapes(case.module(64))
    assert shapes(net) == shapes(case.module(16))
    output = wide.double()(case.inputs())
    assert output.shape == net.double()(case.inputs()).shape and output.isfinite().all()
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    assert [name for name, p in wide.named_parameters() if not p.requires_grad] == frozen


class Vit(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.patch, self.head = nn.Conv2d(3, d, 2, 2), nn.Linear(d, 5)
        self.token, self.place = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 17, d))
        self.block = nn.TransformerEncoderLayer(d, 2, 3 * d, batch_first=True)
        self.register_buffer("scale", torch.rand(d))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.head(self.block(x * self.scale)[:, 0])


class Masked(nn.Module):
    """Attention that is given a fourth tensor, the mask, which has no channels."""

    def __init__(self, d):
        super().__init__()
        self.embed, self.attention, self.head = nn.Linear(3, d), nn.MultiheadAttention(d, 2), nn.Linear(d, 2)

    def forward(self, x):
        h = self.embed(x)
        hidden = torch.zeros(x.shape[1], x.shape[0], dtype=torch.bool, device=x.device)
        return self.head(self.attention(h, h, h, key_padding_mask=hidden)[0].mean(0))


class Mixer(nn.Module):
    """A layer along the positions, whose own hidden width grows and whose output is added to positions."""

    def __init__(self, d):
        super().__init__()
        self.embed, self.head = nn.Linear(3, d), nn.Linear(d, 2)
        self.up, self.down = nn.Linear(6, 3 * d), nn.Linear(3 * d, 6)

    def forward(self, x):
        x = self.embed(x)
        return self.head((x + self.down(self.up(x.transpose(1, 2)).relu()).transpose(1, 2)).mean(1))


class Tied(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(10, d), nn.LayerNorm(d), nn.Linear(d, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.norm(self.embed(x)).mean(1))


class Recurrent(nn.Module):
    """One layer called three times, on a residual stream."""

    def __init__(self, d):
        super().__init__()
        self.first, self.again, self.last = nn.Linear(4, d), nn.Linear(d, d), nn.Linear(d, 1)

    def forward(self, x):
        x = self.first(x)
        for _ in range(3):
            x = x + self.again(x.relu())
        return self.last(x)


class AddsTheInput(nn.Module):
    """The width of the second layer is that of the input and stays."""

    def __init__(self, d):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, d), nn.Linear(d, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(x + self.second(self.first(x).relu()))


class TwoHeads(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body, self.a, self.b = nn.Linear(4, d), nn.Linear(d, 3), nn.Linear(d, 2)

    def forward(self, x):
        h = self.body(x).relu()
        return torch.cat([self.a(h), self.b(h)], 1)


class ResNet(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, d, 3, padding=1, bias=False), nn.BatchNorm2d(d)
        self.a, self.b = nn.Conv2d(d, 2 * d, 3, 2, 1), nn.Conv2d(2 * d, 2 * d, 3, 1, 1)
        self.depthwise = nn.Conv2d(2 * d, 2 * d, 3, padding=1, groups=2 * d)
        self.shortcut, self.slopes = nn.Conv2d(d, 2 * d, 1, 2), nn.PReLU(2 * d)
        self.up, self.head = nn.ConvTranspose2d(2 * d, d, 2, 2), nn.Linear(d, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.stem(x)))
        x = self.depthwise(self.b(F.relu(self.a(x)))) + self.shortcut(x)
        return self.head(self.up(self.slopes(x)).mean((2, 3)))


CASES = {
    "vit": (Vit, torch.randn(2, 3, 8, 8)),
    "masked": (Masked, torch.randn(5, 2, 3)),
    "mixer": (Mixer, torch.randn(2, 6, 3)),
    "tied": (Tied, None),
    "recurrent": (Recurrent, None),
    "adds the input": (AddsTheInput, None),
    "two heads": (TwoHeads, None),
    "resnet": (ResNet, None),
    "bilinear": (lambda d: nn.Sequential(nn.Linear(3, d), Pair(d), nn.Linear(d, 1)), None),
    "one layer": (lambda d: nn.Linear(3, 2), None),
}


class Pair(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.product = nn.Bilinear(d, d, d)

    def forward(self, x):
        return self.product(x, x.tanh())


@pytest.mark.parametrize("case", CASES)
def test_other_architectures(case):
    make, example = CASES[case]
    wide = ntkit.widen(make(8), 3, example)
    assert shapes(wide) == shapes(make(24))
    if example is not None:
        assert wide(example).isfinite().all()


def test_ties_seeds_modes_and_gains_are_kept():
    tied = ntkit.widen(Tied(8), 2)
    assert tied.out.weight is tied.embed.weight
    net = mlp(3, 8, 2).double().eval()
    first, second = (ntkit.widen(net, 2.5, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert first[0].out_features == 20 and first[0].weight.dtype == torch.float64 and not first.training
    assert shapes(ntkit.widen(net, 0.5)) == shapes(mlp(3, 4, 2))
    same = ntkit.widen(net, 1)
    assert all(torch.equal(a, b) for a, b in zip(same.parameters(), net.parameters(), strict=True))
    ntkit.parametrize_ntk(net, w_std=1.1, b_std=0.2, overrides={"2": {"w_std": 0.9}})
    before = net[2].weight.clone()
    wide = ntkit.widen(net, 2, generator=torch.Generator().manual_seed(1))
    scalings = [layer.parametrizations.weight[0] for layer in (wide[0], wide[2])]
    assert [(s.gain, s.fan_in) for s in scalings] == [(1.1, 3), (0.9, 16)]
    assert abs(wide[2].parametrizations.weight.original.std().item() - 1) < 0.5
    assert torch.equal(net[2].weight, before)


class FixedView(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.conv, self.last, self.sizes = nn.Conv2d(3, 8, 3), nn.Linear(8 * 900, 2), sizes

    def forward(self, x):
        return self.last(self.conv(x).view(*self.sizes))


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 5)

    def forward(self, x):
        raise ValueError("no values")


NET = mlp(3, 5, 2)
MIXED = nn.Sequential(ntkit.parametrize_ntk(nn.Linear(3, 5)), nn.ReLU(), nn.Linear(5, 2))


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: ntkit.widen(FixedView((-1, 7200)), 2), InputError, "layer 'last' (Linear) receives (2, 7200)"),
        (lambda: ntkit.widen(FixedView((2, 7200)), 2), InputError, "A size is written into its forward"),
        (lambda: ntkit.widen(nn.Sequential(nn.LSTM(3, 4)), 2), InputError, "layer '0' (LSTM)"),
        (lambda: ntkit.widen(nn.Sequential(nn.ReLU()), 2), InputError, "example=x"),
        (lambda: ntkit.widen(NET, 2, example=torch.ones(2, 7)), InputError, "example"),
        (lambda: ntkit.widen(NET, 2, example=3), InputTypeError, "example"),
        (lambda: ntkit.widen(Fails(), 2), InputError, "(in its forward: no values)"),
        (lambda: ntkit.widen(nn.Sequential(Fails()), 2), InputError, "(in '0': no values)"),
        (lambda: ntkit.widen(MIXED, 2), InputError, "layer '2' cannot be widened: it is not in the NTK parametrisation"),
        (lambda: ntkit.widen(NET, 1.5), InputError, "whole number"),
        (lambda: ntkit.widen(NET, 0), InputError, "positive"),
        (lambda: ntkit.widen(NET, float("inf")), InputError, "finite"),
        (lambda: ntkit.widen(NET, "2"), InputTypeError, "number"),
        (lambda: ntkit.widen(lambda x: x, 2), InputTypeError, "torch.nn.Module"),
    ],
)  # fmt: skip
def test_errors(act, error, message):
    with pytest.raises(error) as caught:
        act()
    assert message in str(caught.value)
