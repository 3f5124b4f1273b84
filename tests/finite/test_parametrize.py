from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.cases import mlp, normal
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import ntkit
from ntkit._src.common import ntk_gains
from ntkit.errors import InputError, InputTypeError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normed_mlp(width: int = 8) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(3, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    ).double()


def conv(width: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(3, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, width, 3, groups=2, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(2 * width, 2),
    ).double()  # fmt: skip


def transposed(width: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(3, width, 3), nn.ReLU(), nn.ConvTranspose1d(width, 2 * width, 4, stride=2, groups=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * width, 2),
    ).double()  # fmt: skip


class Attention(nn.Module):
    def __init__(self, kdim=None):
        super().__init__()
        self.attention = nn.MultiheadAttention(3, 3, batch_first=True, kdim=kdim, vdim=kdim)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.attention(x, x, x)[0].mean(1))


CASES = {
    "mlp": (normed_mlp, (4, 3)),
    "conv": (conv, (4, 3, 5)),
    "transposed": (transposed, (4, 3, 5)),
    "attention": (lambda: Attention().double(), (4, 5, 3)),
    "attention with other keys": (lambda: Attention(kdim=3).double(), (4, 5, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_function_stays_there_and_back(case):
    make, shape = CASES[case]
    net, x = make(), normal(*shape)
    for parameter in net.parameters():
        parameter.data.add_(0.1)
    before, names = net(x), {name: tuple(p.shape) for name, p in net.named_parameters()}
    kind = type(net)
    assert ntkit.parametrize_ntk(net, w_std=1.3, b_std=0.4) is net
    torch.testing.assert_close(net(x), before, rtol=1e-13, atol=1e-14)
    assert any(parametrize.is_parametrized(layer) for layer in net.modules())
    assert ntkit.remove_ntk(net) is net
    torch.testing.assert_close(net(x), before, rtol=1e-13, atol=1e-14)
    assert {name: tuple(p.shape) for name, p in net.named_parameters()} == names
    assert type(net) is kind and not any(parametrize.is_parametrized(layer) for layer in net.modules())


def test_scales_are_those_of_the_exact_kernel():
    """Against the formulas: w_std / sqrt(fan_in) and b_std, the window and the channels of one group counted in the fan-in."""
    net = ntkit.parametrize_ntk(conv(), w_std=1.5, b_std=0.3, overrides={"5": {"w_std": 0.7, "b_std": 0.0}})
    ntkit.initialize(net, generator=generator())
    expected = {"0": (1.5 / math.sqrt(9), 0.3), "2": (1.5 / math.sqrt(9), 0.3), "5": (0.7 / math.sqrt(12), 0.0)}
    for path, (weight, bias) in expected.items():
        layer = net.get_submodule(path)
        torch.testing.assert_close(layer.weight, weight * layer.parametrizations.weight.original, rtol=1e-15, atol=0)
        torch.testing.assert_close(layer.bias, bias * layer.parametrizations.bias.original, rtol=1e-15, atol=0)


def test_scale_of_a_transposed_convolution():
    """Its fan-in is that of one output: the input channels of a group times the window."""
    net = ntkit.initialize(ntkit.parametrize_ntk(transposed(), w_std=1.5), generator=generator())
    layer = net[2]
    torch.testing.assert_close(
        layer.weight, 1.5 / math.sqrt(3 * 4) * layer.parametrizations.weight.original, rtol=1e-15, atol=0
    )


@pytest.mark.parametrize("init", ["ntk", "standard", "torch"])
def test_wide_networks_have_the_exact_kernels(init):
    """Means over random networks of width 256 within 4.5 standard errors (which grow with the width for standard ones)."""
    gains = {} if init == "torch" else {"w_std": 1.2, "b_std": 0.3, "overrides": {"4": {"w_std": 0.8}}}
    net = nn.Sequential(nn.Linear(3, 256), nn.Tanh(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)).double()
    x = normal(3, 3)
    exact = ntkit.infinite_width(net, init=init, **gains).both(x)
    draws = generator()
    if init == "ntk":
        ntkit.parametrize_ntk(net, **gains)
    ntks, nngps = [], []
    for _ in range(40):
        ntkit.initialize(net, init, **({} if init == "ntk" else gains), generator=draws)
        f = net(x).detach()
        nngps.append(f @ f.T / 2)
        ntks.append(ntkit.empirical(net).ntk(x))
    for samples, kernel in ((nngps, exact.nngp), (ntks, exact.ntk)):
        stacked = torch.stack(samples)
        error = stacked.std(0) / len(samples) ** 0.5
        assert ((stacked.mean(0) - kernel).abs() < 4.5 * error).all()
    assert (error / kernel.abs()).min() < 0.02  # the test would see a factor of 1.1


def test_state_dict_holds_the_gains_and_copies_are_independent():
    net = ntkit.initialize(ntkit.parametrize_ntk(normed_mlp(), w_std=1.3, b_std=0.4), generator=generator())
    other, x = ntkit.parametrize_ntk(normed_mlp(), w_std=0.5, b_std=2.0), normal(4, 3)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), net(x))
    assert all(isinstance(value, torch.Tensor) for value in net.state_dict().values())
    net.float().double()
    assert net[0].parametrizations.weight[0].scale == 1.3 / math.sqrt(3)  # no rounding to float32
    clone, before = copy.deepcopy(net), net(x)
    ntkit.remove_ntk(clone)
    assert torch.equal(net(x), before) and torch.equal(clone(x), before)
    ntkit.initialize(net, generator=generator(1))
    assert torch.equal(clone(x), before)


def test_saved_to_a_file(tmp_path):
    net = ntkit.initialize(ntkit.parametrize_ntk(normed_mlp()), generator=generator())
    torch.save(net.state_dict(), tmp_path / "net.pt")
    other, x = ntkit.parametrize_ntk(normed_mlp()), normal(2, 3)
    other.load_state_dict(torch.load(tmp_path / "net.pt", weights_only=True))
    assert torch.equal(other(x), net(x))


def test_tied_weights_stay_tied():
    net = mlp(4, 4, 4).double()
    net[2].weight = net[0].weight
    x = normal(3, 4)
    before = net(x)
    ntkit.parametrize_ntk(net, b_std=1.0)
    torch.testing.assert_close(net(x), before, rtol=1e-13, atol=1e-14)
    ntkit.remove_ntk(net)
    torch.testing.assert_close(net(x), before, rtol=1e-13, atol=1e-14)
    assert net[2].weight is net[0].weight


def test_frozen_parameters_stay_frozen_and_are_drawn():
    net = normed_mlp()
    net[0].weight.requires_grad_(False)
    ntkit.parametrize_ntk(net)
    raw = net[0].parametrizations.weight.original
    before = raw.clone()
    ntkit.initialize(net, generator=generator())
    assert not raw.requires_grad and not torch.equal(raw, before)
    assert not ntkit.remove_ntk(net)[0].weight.requires_grad


def test_initialize_follows_the_generator_and_leaves_the_global_one():
    state = torch.get_rng_state()
    for scheme in ("ntk", "standard", "torch"):
        nets = [normed_mlp() for _ in range(2)]
        if scheme == "ntk":
            nets = [ntkit.parametrize_ntk(net) for net in nets]
        before = torch.get_rng_state()
        first, second = (ntkit.initialize(net, scheme, generator=generator(3)) for net in nets)
        assert torch.equal(torch.get_rng_state(), before)
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(a, b)
    assert not torch.equal(torch.get_rng_state(), state)  # layers draw from it when they are made


def test_other_layers_are_reset():
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.PReLU(), nn.GroupNorm(2, 4), nn.Flatten(), nn.Embedding(3, 4, padding_idx=1)
    )  # fmt: skip
    for tensor in (*net.parameters(), *net.buffers()):
        tensor.data.fill_(7)
    ntkit.initialize(net, "standard", generator=generator())
    assert net[0].bias.abs().max() == 0 and net[0].weight.std() < 2
    assert (net[1].weight == 1).all() and (net[1].running_var == 1).all() and (net[1].running_mean == 0).all()
    assert net[2].weight.item() == 0.25 and (net[3].bias == 0).all()
    assert (net[5].weight[1] == 0).all() and net[5].weight[0].abs().max() < 7


def test_torch_scheme_is_torch():
    """The same distribution as a new layer: bounds and variance of a uniform one."""
    net = ntkit.initialize(nn.Linear(400, 300), "torch", generator=generator())
    assert net.weight.abs().max() <= 1 / 20 and net.bias.abs().max() <= 1 / 20
    assert abs(net.weight.var().item() * 1200 - 1) < 0.02


PLAIN = lambda: mlp(2, 3, 1)  # noqa: E731


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: ntkit.parametrize_ntk(torch.relu), InputTypeError, "must be a torch.nn.Module"),
        (lambda: ntkit.parametrize_ntk(nn.LazyLinear(3)), InputError, "no shape yet"),
        (lambda: ntkit.parametrize_ntk(PLAIN(), w_std=-1), InputError, "finite and at least 0"),
        (lambda: ntkit.parametrize_ntk(PLAIN(), b_std=float("nan")), InputError, "finite and at least 0"),
        (lambda: ntkit.parametrize_ntk(PLAIN(), overrides={"1": {"w_std": 1.0}}), InputError, "['0', '2']"),
        (lambda: ntkit.parametrize_ntk(PLAIN(), overrides=[1]), InputTypeError, "must be a mapping"),
        (lambda: ntkit.parametrize_ntk(PLAIN(), overrides={"0": {"std": 1.0}}), InputError, '"w_std" and "b_std"'),
        (lambda: ntkit.parametrize_ntk(ntkit.parametrize_ntk(PLAIN())), InputError, "remove_ntk"),
        (
            lambda: ntkit.parametrize_ntk(parametrizations.spectral_norm(nn.Linear(2, 2))),
            InputError,
            "computed by the parametrisation",
        ),
        (lambda: ntkit.initialize(PLAIN()), InputError, "parametrize_ntk"),
        (lambda: ntkit.initialize(ntkit.parametrize_ntk(PLAIN()), "standard"), InputError, "remove_ntk"),
        (lambda: ntkit.initialize(ntkit.parametrize_ntk(PLAIN()), w_std=1.0), InputError, "left out"),
        (lambda: ntkit.initialize(PLAIN(), "torch", b_std=1.0), InputError, "left out"),
        (lambda: ntkit.initialize(PLAIN(), "he"), InputError, "'ntk', 'standard', 'torch'"),
        (lambda: ntkit.initialize(PLAIN(), "torch", generator=3), InputTypeError, "torch.Generator"),
    ],
)
def test_errors(act, error, message):
    with pytest.raises(error) as caught:
        act()
    assert message in str(caught.value)


def test_shared_weights_of_other_scale_are_refused():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = nn.Embedding(5, 3), nn.Linear(3, 5)
            self.out.weight = self.embed.weight

    with pytest.raises(InputError, match="shares its weight with 'embed'"):
        ntkit.parametrize_ntk(Tied())
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    net[1].weight = net[0].weight
    with pytest.raises(InputError, match="would scale it by"):
        ntkit.parametrize_ntk(net, overrides={"1": {"w_std": 1.0}})
    assert not parametrize.is_parametrized(net[0])


def test_default_gains_are_sqrt_2_and_0():
    net = ntkit.parametrize_ntk(normed_mlp())
    assert all(gains == {"w_std": 2**0.5, "b_std": 0.0} for gains in ntk_gains(net).values())


@pytest.mark.parametrize("own", [True, False])
def test_monte_carlo_has_the_gains_of_the_module(own):
    gains = {"w_std": 1.3, "b_std": 0.2} if own else {"w_std": 2**0.5, "b_std": 0.0}
    module = ntkit.parametrize_ntk(normed_mlp(), **gains) if own else normed_mlp()
    x, seeds = normal(4, 3), [torch.Generator().manual_seed(0) for _ in range(2)]
    found = ntkit.monte_carlo(module, n_samples=3, generator=seeds[0]).ntk(x)
    expected = ntkit.monte_carlo(normed_mlp(), n_samples=3, generator=seeds[1], **gains).ntk(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layer", [nn.RNN(3, 4, 2, batch_first=True, bidirectional=True), nn.RNNCell(3, 4)])
def test_recurrent_layers(layer):
    """torch reads the weights of nn.RNN from a list: it must hold the scaled ones, in copies and after a change too."""
    x = normal(2, 5, 3) if isinstance(layer, nn.RNN) else normal(2, 3)
    value = copy.deepcopy(layer).double()

    def run(net):
        found = net(x)
        return found[0] if isinstance(found, tuple) else found

    net = ntkit.parametrize_ntk(copy.deepcopy(layer).double(), w_std=1.3, b_std=0.4)
    torch.testing.assert_close(run(net), run(value), rtol=1e-12, atol=1e-14)
    ntkit.initialize(net, generator=generator())
    assert ntk_gains(net)[""] == {"w_std": 1.3, "b_std": 0.4}
    copied = copy.deepcopy(net).double()
    torch.testing.assert_close(run(copied), run(net), rtol=0, atol=0)
    assert (run(net) - run(value)).abs().max() > 0.01
    plain = ntkit.remove_ntk(copied)
    torch.testing.assert_close(run(plain), run(net), rtol=1e-12, atol=1e-14)
    name = "weight_hh_l0" if isinstance(layer, nn.RNN) else "weight_hh"
    raw = getattr(net.parametrizations, name).original
    torch.testing.assert_close(getattr(plain, name), 1.3 / 4**0.5 * raw)
    assert len(torch.autograd.grad(run(net).sum(), tuple(net.parameters()))) == len(list(layer.parameters()))
