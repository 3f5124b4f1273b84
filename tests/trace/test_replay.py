"""A module that is not what its layers say has its own kernel or none: never that of the plain network."""

import copy

import pytest
import torch
from tests.cases import mlp, normal
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import ntkit
from ntkit.errors import InputError, UnsupportedLayerError


class Mask(nn.Module):
    """Half of the columns."""

    def forward(self, weight):
        return weight * (torch.arange(weight.shape[1]) % 2)


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


def wrapped(change):
    net = mlp(4, 8, 8, 2)
    change(net)
    return net


def old(function):
    """Apply a wrapper that PyTorch deprecates, without its warning."""

    def change(net):
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(net[2])

    return change


def double_weights(layer, inputs):
    layer.weight.data.mul_(2)


class Lazy(nn.Module):
    """Its forward cuts the gradient without a trace in the graph."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        with torch.no_grad():
            h = torch.relu(self.first(x))
        return self.head(torch.relu(self.second(h)))


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.relu(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Apply(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


class Counting(nn.Module):
    """Changes a buffer with every call."""

    def __init__(self):
        super().__init__()
        self.net = mlp(4, 8, 8, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.net(x)


class Own(nn.Module):
    """A frozen random weight that also gives a number."""

    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.fc.weight.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.relu(self.fc(x))) * self.fc.weight.norm()


def instance_forward(net):
    net[2].forward = lambda x: 3 * nn.Linear.forward(net[2], x)


def normed(weight, bias=0.0, frozen=True, groups=False):
    net = mlp(4, 8, 8, 2)
    net[1] = nn.Sequential(nn.GroupNorm(2, 8) if groups else nn.LayerNorm(8), nn.ReLU())
    with torch.no_grad():
        net[1][0].weight.copy_(torch.as_tensor(weight).expand(8))
        net[1][0].bias.copy_(torch.as_tensor(bias).expand(8))
    net[1][0].requires_grad_(not frozen)
    return net


REFUSED = {  # the module, the path that the refusal names, and a word of its reason
    "column mask": (wrapped(lambda n: parametrize.register_parametrization(n[2], "weight", Mask())), "2", "Mask"),
    "bias mask": (wrapped(lambda n: parametrize.register_parametrization(n[2], "bias", Twice())), "2", "bias is computed"),
    "weight norm": (wrapped(lambda n: parametrizations.weight_norm(n[2])), "2", "WeightNorm"),
    "spectral norm": (wrapped(lambda n: parametrizations.spectral_norm(n[2])), "2", "SpectralNorm"),
    "orthogonal": (wrapped(lambda n: parametrizations.orthogonal(n[2])), "2", "Orthogonal"),
    "old weight norm": (wrapped(old(torch.nn.utils.weight_norm)), "2", "weight_norm"),
    "old spectral norm": (wrapped(old(torch.nn.utils.spectral_norm)), "2", "spectral_norm"),
    "pruned": (wrapped(lambda n: prune.random_unstructured(n[2], "weight", 0.5)), "2", "prun"),
    "pruned twice": (
        wrapped(lambda n: [prune.random_unstructured(n[2], "weight", 0.5) for _ in range(2)]), "2", "prun",
    ),
    "parametrised before and after": (
        wrapped(lambda n: (ntkit.parametrize_ntk(n), parametrize.register_parametrization(n[2], "weight", Mask()))),
        "2", "Scaled, Mask",
    ),
    "hook that writes weights": (wrapped(lambda n: n[2].register_forward_pre_hook(double_weights)), "2", "reproduce"),
    "backward hook": (
        wrapped(lambda n: n[2].register_full_backward_hook(lambda m, i, o: (0.5 * i[0],))), "forward", "derivative",
    ),
    "backward of its own": (nn.Sequential(nn.Linear(4, 8), Apply(Straight), nn.Linear(8, 2)), "forward", "derivative"),
    "gradient cut off": (Lazy(), "forward", "derivative"),
    "random number of a weight": (Own(), "forward", "reproduce"),
    "uneven norm weight": (normed(torch.linspace(1, 2, 8)), "1.0", "differs between channels"),
    "trained norm weight": (normed(2.0, frozen=False), "1.0", "trained from values other than 1"),
    "trained norm bias": (normed(1.0, 0.5, frozen=False), "1.0", "trained from values other than 0"),
    "trained group norm": (normed(2.0, frozen=False, groups=True), "1.0", "trained from values other than 1"),
    "counter": (Counting(), "forward", "changes its own 'calls'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_its_layers_is_refused(case):
    module, path, reason = REFUSED[case]
    with pytest.raises(UnsupportedLayerError) as raised:
        ntkit.infinite_width(module).ntk(normal(3, 4))
    (problem,) = raised.value.problems
    assert problem.path == path
    assert reason in problem.reason
    assert problem.instead


class Patched(nn.Module):
    """A forward of its own, of one layer only."""

    def __init__(self, width):
        super().__init__()
        self.net = mlp(4, width, width, 2)
        layer = self.net[2]
        layer.forward = lambda x: 3 * nn.functional.linear(x, layer.weight)

    def forward(self, x):
        return self.net(x)


@pytest.mark.parametrize("kind", [lambda: nn.LayerNorm(8), lambda: nn.GroupNorm(2, 8)])
def test_frozen_affine_parameters_are_numbers(kind):
    norm, plain = kind().requires_grad_(False), kind().requires_grad_(False)
    nn.init.constant_(norm.weight, 2.0)
    scaled = nn.Sequential(nn.Linear(4, 8), norm, nn.GELU(), nn.Linear(8, 2))
    by_hand = nn.Sequential(nn.Linear(4, 8), plain, Twice(), nn.GELU(), nn.Linear(8, 2))
    x = normal(3, 4)
    torch.testing.assert_close(ntkit.infinite_width(scaled).ntk(x), ntkit.infinite_width(by_hand).ntk(x))


def test_gains_of_the_module_are_read_and_others_contradict_them():
    x, plain = normal(3, 4), mlp(4, 8, 8, 2)
    net = ntkit.parametrize_ntk(copy.deepcopy(plain), w_std=1.0, b_std=0.5)
    expected = ntkit.infinite_width(plain, w_std=1.0, b_std=0.5).ntk(x)
    assert torch.equal(ntkit.infinite_width(net).ntk(x), expected)
    assert torch.equal(ntkit.infinite_width(net, w_std=1.0).ntk(x), expected)
    with pytest.raises(InputError, match=r"'0' is in the NTK parametrisation with w_std=1, but w_std=1.3"):
        ntkit.infinite_width(net, w_std=1.3)
    with pytest.raises(InputError, match=r"'2' .* b_std=0.5, but b_std=0.1 is given"):
        ntkit.infinite_width(net, overrides={"2": {"b_std": 0.1}})
    with pytest.raises(InputError, match="needs plain weights"):
        ntkit.infinite_width(net, init="standard")
    assert torch.equal(ntkit.infinite_width(ntkit.remove_ntk(net), w_std=1.0, b_std=0.5).ntk(x), expected)


def test_a_forward_of_the_instance_is_part_of_the_module():
    x = normal(3, 4)
    layers = mlp(4, 8, 8, 2)
    net = nn.Sequential(layers[0], nn.ReLU(), nn.Linear(8, 8, bias=False), Twice(), layers[3], layers[4])
    net[3].forward = lambda h: 3 * h
    with_layer = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 2))
    expected = 9 * ntkit.infinite_width(with_layer).nngp(x)
    torch.testing.assert_close(ntkit.infinite_width(net).nngp(x), expected)
    # A forward that closes over the layer itself still uses that layer's weights in a copy.
    with pytest.raises(InputError, match=r"closes over a layer and uses its parameter 'net\.2\.weight'"):
        ntkit.infinite_width(Patched(8))


def test_a_norm_shared_by_two_values_is_refused():
    class Shared(nn.Module):
        def __init__(self, second):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 2)
            self.norm, self.second = nn.LayerNorm(8), nn.LayerNorm(8) if second else None

        def forward(self, x):
            second = self.norm if self.second is None else self.second
            return self.head(torch.relu(self.norm(self.a(x))) + torch.relu(second(self.b(x))))

    with pytest.raises(UnsupportedLayerError, match="affine parameters are also those of 'norm'"):
        ntkit.infinite_width(Shared(second=False))
    assert ntkit.infinite_width(Shared(second=True)).ntk(normal(3, 4)).shape == (3, 3)


def test_two_norms_of_one_value_have_parameters_of_their_own():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(4, 8), nn.Linear(16, 2)
            self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)

        def forward(self, x):
            h = self.fc(x)
            return self.head(torch.cat([self.first(h), self.second(h)], 1))

    x = normal(3, 4)
    one = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    torch.testing.assert_close(ntkit.infinite_width(Both()).ntk(x), ntkit.infinite_width(one).ntk(x))
    with pytest.raises(UnsupportedLayerError, match="depend on each other"):
        ntkit.infinite_width(_Summed(Both()))


class _Summed(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net, self.head = net, nn.Linear(8, 2)

    def forward(self, x):
        h = self.net.fc(x)
        return self.head(self.net.first(h) + self.net.second(h))


def test_the_check_can_be_left_out():
    net = wrapped(lambda n: n[2].register_forward_hook(lambda m, i, o: 2 * o))
    x = normal(3, 4)
    assert torch.equal(ntkit.infinite_width(net, check=False).ntk(x), ntkit.infinite_width(mlp(4, 8, 8, 2)).ntk(x))
    parametrised = wrapped(lambda n: parametrizations.weight_norm(n[2]))
    with pytest.raises(UnsupportedLayerError, match="WeightNorm"):
        ntkit.infinite_width(parametrised, check=False)


def test_zero_weights_prove_nothing_so_fresh_ones_are_drawn():
    net = Own()
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    with pytest.raises(UnsupportedLayerError, match="reproduce"):
        ntkit.infinite_width(net)


def test_a_module_that_casts_to_single_precision():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(torch.relu(self.fc(x.to(torch.float32)))).float()

    x = normal(3, 4)
    plain = mlp(4, 8, 2)
    torch.testing.assert_close(ntkit.infinite_width(Cast()).ntk(x.float()), ntkit.infinite_width(plain).ntk(x.float()))
    hooked = Cast()
    hooked.head.register_forward_hook(lambda m, i, o: 1.1 * o)
    torch.testing.assert_close(
        ntkit.infinite_width(hooked).ntk(x.float()), 1.21 * ntkit.infinite_width(plain).ntk(x.float())
    )
    cut = Cast()
    cut.head.register_forward_hook(lambda m, i, o: 1.1 * o.detach() - 0.1 * o)
    with pytest.raises(UnsupportedLayerError):
        ntkit.infinite_width(cut)


def test_inputs_that_the_module_cannot_be_checked_on():
    class Root(nn.Module):
        def __init__(self, shift):
            super().__init__()
            self.fc, self.shift = nn.Linear(4, 2), shift

        def forward(self, x):
            return self.fc((x - self.shift).log())

    x = normal(3, 4).abs() + 0.5
    expected = ntkit.infinite_width(nn.Linear(4, 2)).nngp(x.log())
    torch.testing.assert_close(ntkit.infinite_width(Root(0.0)).nngp(x), expected)
    with pytest.raises(InputError, match="check=False skips the check"):
        ntkit.infinite_width(Root(100.0))
    # Random parameters are drawn, so what they are now does not matter, not even NaN.
    net = mlp(4, 8, 8, 2)
    nn.init.constant_(net[0].weight, float("nan"))
    assert torch.equal(ntkit.infinite_width(net).nngp(x), ntkit.infinite_width(mlp(4, 8, 8, 2)).nngp(x))


def test_randomness_is_named():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(x + torch.randn_like(x))

    with pytest.raises(UnsupportedLayerError, match="draws random numbers"):
        ntkit.infinite_width(Noisy())


def test_further_arguments_keep_their_defaults():
    class Options(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = mlp(4, 8, 8, 2)

        def forward(self, x, mask=None, scale=2.0, **options):
            return scale * self.net(x) if mask is None else mask

    x = normal(3, 4)
    torch.testing.assert_close(ntkit.infinite_width(Options()).ntk(x), 4 * ntkit.infinite_width(mlp(4, 8, 8, 2)).ntk(x))


def test_kernels_of_one_limit_for_several_shapes_keep_engines_apart():
    net = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net)
    for length in (5, 9, 5, 7, 9):
        x = normal(3, 1, length)
        torch.testing.assert_close(limit.ntk(x, engine="native"), limit.ntk(x, engine="reference"), rtol=1e-12, atol=0)
        torch.testing.assert_close(limit.ntk.diag(x, engine="native"), limit.ntk.diag(x, engine="reference"))
