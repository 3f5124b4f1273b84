"""Layers that draw random numbers are found by their class, and what they run by what it draws."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.common import drawing_layers, random_layers
from ntkit.errors import InputError, NtkitError, UnsupportedLayerError


class ByFunction(nn.Module):
    """Dropout by a function in the forward of a layer."""

    def forward(self, x):
        return F.dropout(x, 0.5, self.training)


class ByHand(nn.Module):
    def forward(self, x):
        return x * (torch.rand_like(x) > 0.5) if self.training else x


class DropPath(nn.Module):
    def forward(self, x):
        return x * x.new_empty(len(x), 1).bernoulli_(0.9) if self.training else x


class Tokens(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


DRAWING = {
    "dropout": (lambda: nn.Dropout(0.3), "1"),
    "alpha dropout": (lambda: nn.AlphaDropout(0.3), "1"),
    "by function": (ByFunction, "1"),
    "by hand": (ByHand, "1"),
    "stochastic depth": (DropPath, "1"),
    "encoder": (lambda: Tokens(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)), "1.layer.self_attn"),
}


def network(layer):
    head = [] if isinstance(layer, Tokens) else [nn.ReLU(), nn.Linear(4, 1)]
    return nn.Sequential(nn.Linear(3, 4), layer, *head).double()


@pytest.mark.parametrize(("make", "path"), DRAWING.values(), ids=DRAWING)
def test_one_behaviour_in_training_mode(make, path):
    """Neither kernel exists in training mode, in the same words; in evaluation mode dropout is the identity."""
    net = network(make())
    x = torch.randn(3, *([2] if "layer" in path else []), 3, dtype=torch.float64)
    given = {"attention_samples": 8, "generator": torch.Generator().manual_seed(0)} if "layer" in path else {}
    kernels = {
        "limit": lambda: ntkit.infinite_width(net, **given).ntk(x),
        "empirical": lambda: ntkit.empirical(net).ntk(x),
        "monte carlo": lambda: ntkit.monte_carlo(net, 2, generator=torch.Generator().manual_seed(0)).ntk(x),
        "hierarchy": lambda: ntkit.TangentHierarchy(module=net, n_samples=0).fit(x, torch.ones(3, dtype=torch.float64)),
    }
    for name, kernel in kernels.items():
        state = torch.get_rng_state()
        with pytest.raises(NtkitError, match="random") as caught:
            kernel()
        assert "module.eval()" in str(caught.value), name
        if name in ("limit", "monte carlo"):
            assert path in str(caught.value) and "in training mode its outputs are random" in str(caught.value), name
            assert torch.equal(torch.get_rng_state(), state)
    assert net.training
    net.eval()
    for name in ("limit", "empirical", "monte carlo"):
        assert bool(torch.isfinite(kernels[name]()).all())


def test_evaluation_mode_is_the_network_without_dropout():
    net, x = network(nn.Dropout(0.3)).eval(), torch.randn(3, 3, dtype=torch.float64)
    plain = nn.Sequential(net[0], net[2], net[3])
    torch.testing.assert_close(
        ntkit.infinite_width(net).ntk(x), ntkit.infinite_width(plain).ntk(x), rtol=1e-12, atol=0.0
    )


def test_all_places_are_named_at_once():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout2d(0.1), nn.MaxPool2d(2), nn.Flatten(), ByFunction(), nn.Linear(36, 1)
    )  # fmt: skip
    with pytest.raises(UnsupportedLayerError) as caught:
        ntkit.infinite_width(net).ntk(torch.randn(2, 3, 8, 8))
    assert {problem.path for problem in caught.value.problems} == {"1", "2", "3", "5"}


@pytest.mark.parametrize(
    "layer",
    [nn.Dropout(0.0), nn.ReLU(), Tokens(nn.TransformerEncoderLayer(4, 2, 4, 0.0, batch_first=True)), nn.RReLU().eval()],
)
def test_what_draws_nothing_passes(layer):
    net = network(layer)
    training = {path for path, one in net.named_modules() if one.training}
    assert drawing_layers(net, training, torch.randn(2, 2, 3, dtype=torch.float64)) == {}


def test_known_layers_need_no_run():
    net = nn.ModuleDict(
        {
            "lstm": nn.LSTM(3, 4, 2, dropout=0.1),
            "one": nn.LSTM(3, 4, 1),
            "attention": nn.MultiheadAttention(4, 2, dropout=0.1),
            "off": nn.Dropout(0.5).eval(),
        }
    )
    assert random_layers(net) == ["lstm", "attention"]
    assert drawing_layers(net, {"off"}) == {"off": "Dropout"}  # its forward raises
    assert drawing_layers(net, set()) == {}


def test_what_draws_in_evaluation_too_is_not_turned_off_by_it():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    net = network(Noisy())
    paths = {path for path, _ in net.named_modules()}
    assert drawing_layers(net, paths, torch.randn(2, 3, dtype=torch.float64)) == {}
    with pytest.raises(NtkitError) as caught:
        ntkit.infinite_width(net).ntk(torch.randn(2, 3, dtype=torch.float64))
    assert "module.eval()" not in str(caught.value)


def test_monte_carlo_names_the_layer():
    mc = ntkit.monte_carlo(network(ByFunction()), 2)
    with pytest.raises(InputError, match=r"1 \(ByFunction\)"):
        mc.ntk(torch.randn(2, 3, dtype=torch.float64))
