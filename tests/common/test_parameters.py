"""Where a layer's weight comes from, and what every door does with weights that something computes."""

import warnings

import pytest
import torch
from tests.cases import mlp, normal
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import ntkit
from ntkit import diagnostics, features
from ntkit._src.applications import search
from ntkit._src.common import ntk_gains, parameter_source, strip_ntk
from ntkit.errors import InputError, InputTypeError, NtkitError
from ntkit.extending import copy_module


class Twice(nn.Module):
    def forward(self, weight):
        return 2 * weight


def quiet(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated wrappers
        return function(*args)


def plain_tensor(layer):
    weight = layer.weight.detach().clone()
    del layer.weight
    layer.weight = weight


COMPUTED = {
    "parametrisation": (lambda layer: parametrize.register_parametrization(layer, "weight", Twice()), "Twice"),
    "weight norm": (parametrizations.weight_norm, "WeightNorm"),
    "spectral norm": (parametrizations.spectral_norm, "SpectralNorm"),
    "old weight norm": (lambda layer: quiet(torch.nn.utils.weight_norm, layer), "torch.nn.utils.weight_norm"),
    "old spectral norm": (lambda layer: quiet(torch.nn.utils.spectral_norm, layer), "torch.nn.utils.spectral_norm"),
    "pruned": (lambda layer: prune.random_unstructured(layer, "weight", 0.5), "pruning"),
    "plain tensor": (plain_tensor, "plain tensor"),
}


def wrapped(case):
    torch.manual_seed(0)
    net = mlp(4, 8, 8, 2, activation=nn.Tanh).double()
    if case in COMPUTED:
        COMPUTED[case][0](net[2])
    return net.eval()


def test_plain_and_scaled_parameters():
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2, bias=False))
    source = parameter_source(net[0], "weight")
    assert source.parameter is net[0].weight and source.scale == 1.0 and not source.computed_by
    assert parameter_source(net[1], "bias") is None
    ntkit.parametrize_ntk(net, w_std=1.5, b_std=0.5)
    source = parameter_source(net[0], "weight")
    assert source.parameter is net[0].parametrizations.weight.original
    assert source.scale == 1.5 / 2 and torch.equal(source.value, net[0].weight)
    assert ntk_gains(net) == {"0": {"w_std": 1.5, "b_std": 0.5}, "1": {"w_std": 1.5}}
    value = net[0].weight.detach().clone()
    assert ntk_gains(strip_ntk(net)) == {} and torch.equal(net[0].weight, value)


@pytest.mark.parametrize("case", COMPUTED)
def test_computed_weights_are_named(case):
    source = parameter_source(wrapped(case)[2], "weight")
    assert source.parameter is None and source.scale is None
    assert COMPUTED[case][1] in source.computed_by and source.remedy


@pytest.mark.parametrize("case", COMPUTED)
def test_copies_compute_the_same(case):
    net, x = wrapped(case), torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    torch.testing.assert_close(copy_module(net)(x), net(x))


DRAWING = {
    "parametrize_ntk": ntkit.parametrize_ntk,
    "initialize": lambda net: ntkit.initialize(net, "standard"),
    "monte_carlo": lambda net: ntkit.monte_carlo(net, 2),
    "monte_carlo, standard": lambda net: ntkit.monte_carlo(net, 2, init="standard").ntk(torch.zeros(2, 4)),
    "widen": lambda net: ntkit.widen(net, 2),
    "infinite_width": ntkit.infinite_width,
}


@pytest.mark.parametrize("door", DRAWING)
@pytest.mark.parametrize("case", COMPUTED)
def test_what_draws_weights_refuses_computed_ones(case, door):
    with pytest.raises(NtkitError, match="(?s)'?2'?.*weight is computed by"):
        DRAWING[door](wrapped(case))


def jacobian(net, x):
    trained = [p for p in net.parameters() if p.requires_grad]
    rows = [torch.autograd.grad(entry, trained, retain_graph=True) for entry in net(x).flatten()]
    return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])


def hooked(net):
    net[2].register_forward_hook(lambda layer, inputs, output: 2 * output)
    net[4].register_forward_pre_hook(lambda layer, inputs: (inputs[0] + 1,))
    return net


@pytest.mark.parametrize("method", ["auto", "jacobian", "structured"])
@pytest.mark.parametrize("case", [*COMPUTED, "hooks"])
def test_derivatives_are_those_of_the_module_as_it_is(case, method):
    net = hooked(wrapped("plain")) if case == "hooks" else wrapped(case)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    j = jacobian(net, x).reshape(3, -1)
    weight = net[2].weight.detach().clone()
    torch.testing.assert_close(ntkit.empirical(net, method=method).ntk(x), j @ j.T / 2, rtol=1e-10, atol=1e-12)
    assert torch.equal(net[2].weight, weight)  # no wrapper of torch.func is left in its place
    copy_module(net)


@pytest.mark.parametrize("case", [*COMPUTED, "hooks"])
def test_expansions_are_those_of_the_module_as_it_is(case):
    net = hooked(wrapped("plain")) if case == "hooks" else wrapped(case)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    before, j = net(x).detach(), jacobian(net, x)
    linear, second = ntkit.linearize(net), ntkit.taylor(net, 2)
    torch.testing.assert_close(linear(x), before)
    torch.testing.assert_close(second(x), before)
    generator = torch.Generator().manual_seed(0)
    step = [1e-3 * torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in linear.parameters()]
    with torch.no_grad():
        for parameter, change in zip(linear.parameters(), step, strict=True):
            parameter.add_(change)
    moved = before + (j @ torch.cat([change.flatten() for change in step])).reshape(before.shape)
    torch.testing.assert_close(linear(x), moved, rtol=1e-9, atol=1e-11)


def test_a_copy_that_uses_the_original_is_noticed():
    net = mlp(4, 8, 2)
    layer = net[2]
    layer.forward = lambda x: 2 * nn.Linear.forward(layer, x)
    x = torch.zeros(2, 4)
    for door in (
        lambda: ntkit.infinite_width(net),
        lambda: ntkit.monte_carlo(net, 2).ntk(x),
        lambda: ntkit.linearize(net)(x),
    ):
        with pytest.raises(InputError, match=r"closes over a layer"):
            door()


@pytest.mark.parametrize(
    "door",
    [
        ntkit.infinite_width,
        ntkit.linearize,
        ntkit.widen,
        ntkit.parametrize_ntk,
        ntkit.empirical,
        ntkit.initialize,
        ntkit.monte_carlo,
    ],
)
def test_modules_without_values(door):
    arguments = {ntkit.widen: (2,), ntkit.monte_carlo: (2,)}.get(door, ())
    with pytest.raises(InputError, match="meta device"):
        door(nn.Linear(3, 2, device="meta"), *arguments).ntk(torch.zeros(2, 3))
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(InputError, match=r"lazy.*Run the module once"):
        door(net, *arguments).ntk(torch.zeros(2, 3))


IDS = torch.tensor([[0, 3, 1, 4], [2, 2, 0, 1], [4, 1, 3, 0], [1, 1, 1, 2]])
CLASSES = torch.tensor([0, 1, 1, 0])


def bag(dtype):
    """Build a network of integers, whose dtype shows only in its parameters."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Embedding(5, 6), nn.Flatten(), nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, 1))
    return net.to(dtype)


HALF = {
    "ntk": lambda net: ntkit.empirical(net).ntk(IDS),
    "ntk, jacobian": lambda net: ntkit.empirical(net, method="jacobian").ntk(IDS),
    "ntk, products": lambda net: ntkit.empirical(net, method="ntk-vp").ntk(IDS),
    "ntk diag": lambda net: ntkit.empirical(net).ntk.diag(IDS),
    "nngp": lambda net: ntkit.empirical(net).nngp(IDS),
    "ntk_by_layer": lambda net: ntkit.empirical(net).ntk_by_layer(IDS),
    "ntk_operator": lambda net: ntkit.empirical(net).ntk_operator(IDS) @ torch.ones(4, dtype=net[0].weight.dtype),
    "linearize": ntkit.linearize,
    "taylor": lambda net: ntkit.taylor(net, 2),
    "train": lambda net: ntkit.train(
        net, IDS, torch.ones(4, 1).to(net[0].weight), ntkit.Schedule(learning_rate=0.1, steps=1)
    ),
    "attribute": lambda net: ntkit.attribute(net, IDS, CLASSES, IDS),
    "posterior": lambda net: ntkit.posterior(ntkit.empirical(net), IDS, torch.ones(4, 1).to(net[0].weight), IDS),
    "hierarchy_kernel": lambda net: ntkit.hierarchy_kernel(net, IDS),
    "hierarchy_terms": lambda net: ntkit.hierarchy_terms(3).evaluate(net, IDS[:3]),
    "finite_width_correction": lambda net: ntkit.finite_width_correction(net, IDS, torch.ones(4).to(net[0].weight)),
    "KernelRecorder": lambda net: diagnostics.KernelRecorder(net, IDS),
    "Recorder": lambda net: features.Recorder(net, IDS),
    "nfm": features.nfm,
    "nfa": lambda net: features.nfa(net, IDS),
    "agop": lambda net: features.agop(net, IDS),
    "ptk": lambda net: features.ptk(net, IDS),
    "layer_ntk": lambda net: features.layer_ntk(net, IDS),
    "linear_regions": lambda net: search.linear_regions(net, torch.ones(2, 4)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALF)
def test_parameters_of_half_precision_are_refused(name, dtype):
    with pytest.raises(InputTypeError, match=f"half precision cannot hold a kernel. Got {dtype} in '0.weight'"):
        HALF[name](bag(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_limits_and_random_networks_do_not_depend_on_the_modules_precision(dtype):
    full, half = bag(torch.float32), bag(dtype)
    expected = ntkit.infinite_width(full).ntk(IDS)
    torch.testing.assert_close(ntkit.infinite_width(half).ntk(IDS), expected, rtol=1e-12, atol=0)
    drawn = [ntkit.monte_carlo(net, 2, generator=torch.Generator().manual_seed(0)).ntk(IDS) for net in (full, half)]
    torch.testing.assert_close(drawn[0], drawn[1], rtol=1e-12, atol=0)
    x = normal(4, 3)
    vectors = mlp(3, 8, 1)
    expected = ntkit.infinite_width(vectors, b_std=0.3).ntk(x)
    torch.testing.assert_close(ntkit.infinite_width(vectors.to(dtype), b_std=0.3).ntk(x), expected, rtol=1e-12, atol=0)


def test_a_forward_that_works_in_half_precision_only_has_no_limit():
    net = mlp(3, 8, 1).half()
    net.register_forward_pre_hook(lambda module, args: (args[0].half(),))
    with pytest.raises(NtkitError):
        ntkit.infinite_width(net).ntk(torch.ones(2, 3))
