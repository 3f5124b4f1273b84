"""What the native engine makes of a program before it plans: supported or not, H or K, cached data and where they begin."""

import pytest
import torch
from tests.cases import NETWORKS, Function, mlp, normal
from tests.native.networks import network, of_type
from torch import nn

import ntkit
from ntkit._src.native._core import NOTHING, Cached
from ntkit._src.native._network import _MOST_NODES, PlannedNetwork, single_precision, unsupported
from ntkit._src.program import AvgPool, Conv, Dense, Input, Node, Normalize, Pointwise, Program


def cached(net):
    """Cached data by name of what they are and of the operation they belong to."""
    nodes = net.program.nodes
    return {(what.name, type(nodes[index].op).__name__): at for (what, index), at in net.cache.items()}


def test_the_cache_of_a_padded_convolution():
    net = network(NETWORKS["conv1d, flatten"].build(), 2, 5)
    # The scale, then half the variances of the input for the padding, then the deviations of the activation.
    assert cached(net) == {("HALF", "Input"): 1, ("DEVIATION", "Pointwise"): 6}
    assert net.cache_size == 1 + 5 + 5
    assert net.cache_at(Cached.HALF, 0) == 1 and net.cache_at(Cached.MEAN, 0) == NOTHING


def test_the_cache_without_padding_or_behind_circular_windows():
    for options in ({}, {"padding": 1, "padding_mode": "circular"}):
        conv = nn.Conv1d(2, 4, 3, **options)
        net = network(nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.Linear(20 if options else 12, 1)), 2, 5)
        assert cached(net) == {("DEVIATION", "Pointwise"): 1}


def test_the_cache_of_vectors():
    net = network(mlp(3, 4, 1), 3)
    assert cached(net) == {("HALF", "Input"): 1, ("DEVIATION", "Pointwise"): 2}
    assert net.cache_size == 3 and net.batch == 32 and net.size(0) == [1, 1, 32] and net.first_axis(0) == 3


def test_the_cache_of_a_normalisation_take_two_numbers_per_position():
    net = network(
        nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), 3
    )
    assert cached(net) == {
        ("HALF", "Input"): 3,  # behind the common scale, that of the data, and their ratio
        ("HALF", "Dense"): 4,
        ("SCALE", "Normalize"): 5,
        ("DEVIATION", "Pointwise"): 9,
        ("HALF", "Pointwise"): 8,
    }
    assert net.cache_size == 10  # two deviations share a name here: at 7 and 9


def test_the_cache_of_pools():
    even = [nn.Conv1d(2, 4, 1), nn.AvgPool1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1)]
    net = network(nn.Sequential(*even), 2, 6)
    assert ("INSIDE", "AvgPool") in cached(net) and ("MEAN", "AvgPool") not in cached(net) and net.windows
    uneven = [nn.Conv1d(2, 4, 1), nn.AvgPool1d(3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1)]
    net = network(nn.Sequential(*uneven), 2, 6)
    assert ("MEAN", "AvgPool") in cached(net)
    last = [nn.Conv1d(2, 4, 1), nn.ReLU(), nn.AvgPool1d(2), nn.Flatten(), nn.Linear(12, 1)]
    net = network(nn.Sequential(*last), 2, 6)
    assert set(cached(net)) == {("DEVIATION", "Pointwise")} and not net.windows  # only linear operations follow


def test_half_is_kept_where_theta_needs_k_or_h_ends():
    layers = [nn.Conv1d(2, 4, 1), nn.AvgPool1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1)]
    trained = network(nn.Sequential(*layers), 2, 6)
    assert ("HALF", "Conv") in cached(trained)
    layers[0].weight.requires_grad_(False)
    layers[0].bias.requires_grad_(False)
    frozen = network(nn.Sequential(*layers), 2, 6)
    assert ("HALF", "Conv") not in cached(frozen)


def test_what_is_linear_fused_and_signed():
    net = network(
        nn.Sequential(
            nn.Conv1d(2, 4, 1),
            nn.LeakyReLU(0.1),
            nn.Conv1d(4, 4, 1),
            nn.AvgPool1d(2),
            nn.ReLU(),
            nn.Conv1d(4, 4, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(12, 1),
        ),
        2,
        6,
    )
    leaky, alone, last = of_type(net, Pointwise)
    assert net.fused == {leaky, last}  # a pool stands before the other one
    assert net.linear_after == (False,) * last + (True,) * 3
    # LeakyReLU keeps signs; values of ReLU have one sign, and so has everything behind.
    (data,), convs = of_type(net, Input), of_type(net, Conv)
    assert all(net.negative[i] for i in (data, *convs[:2], leaky))
    assert not any(net.negative[i] for i in (alone, convs[2], last, net.program.output))


def test_a_layer_with_two_readers_is_not_fused():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 4)

        def forward(self, x):
            h = self.first(x)
            return h + self.second(torch.relu(h))

    net = network(nn.Sequential(Residual(), nn.ReLU(), nn.Linear(4, 1)), 3)
    assert not net.fused
    first, second, _ = of_type(net, Dense)
    assert ("HALF", "Dense") in cached(net)
    assert len(net.readers[first]) == 2 and len(net.readers[second]) == 1


def test_a_layer_without_weights_is_not_fused():
    net = mlp(3, 4, 1)
    net[0].weight.requires_grad_(False)
    found = network(net, 3, overrides={"0": {"w_std": 0.0, "b_std": 1.0}})
    assert not found.fused


def test_the_largest_relative_bias():
    net = mlp(3, 4, 4, 1)
    found = network(net, 3, w_std=2.0, b_std=1.0, overrides={"2": {"w_std": 1.0}})
    assert found.bias == 1.0
    assert network(net, 3, w_std=2.0, b_std=0.0).bias == 0.0


def test_sizes_have_three_axes_and_the_last_is_contiguous():
    net = network(nn.Sequential(nn.Conv2d(2, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(80, 1)), 2, 4, 5)
    assert net.size(0) == [1, 4, 5] and net.first_axis(0) == 1 and net.batch == 1
    assert net.size(net.program.output) == [1, 1, 1] and net.first_axis(net.program.output) == 3
    assert net.data_sizes == (40,) and net.inputs == (0,)


UNSUPPORTED = {
    "a product": ((3,), [nn.Linear(3, 4), Function(lambda x: x * 2), nn.ReLU(), nn.Linear(4, 1)], None),
    "a gain before a smooth activation": ((3,), [nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 1)], None),
    "a gain before a series": (
        (3,),
        [nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1)],
        "a trained gain before tanh, which this engine computes by a series",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_unsupported_is_named(name):
    shape, layers, reason = UNSUPPORTED[name]
    try:
        program = ntkit.infinite_width(nn.Sequential(*layers)).program(shape)
    except ntkit.errors.UnsupportedLayerError:
        pytest.skip("no limit at all")
    found = unsupported(program)
    assert (found is None) if reason is None else (reason in found)


def test_networks_that_are_too_deep_are_refused():
    net = network(mlp(3, 4, 1), 3)
    first, *rest = net.program.nodes
    deep = (first, *(Node(rest[-1].op, (i,), (), "deep", True, True) for i in range(_MOST_NODES)))
    assert unsupported(Program(deep[:_MOST_NODES], (None,))) is None
    assert unsupported(Program(deep, (None,))) == f"more than {_MOST_NODES} operations"


@pytest.mark.parametrize(
    ("layer", "single"),
    [(nn.ReLU(), True), (nn.LeakyReLU(), True), (nn.GELU(), False), (nn.LayerNorm(4, elementwise_affine=False), False)],
)
def test_single_precision_needs_rectifiers_alone(layer, single):
    net = network(nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 1)), 3)
    assert single_precision(net.program) == single == net.single_precision
    assert len(of_type(net, Normalize)) + len(of_type(net, Pointwise)) == 1
    assert not of_type(net, AvgPool)


def test_networks_are_values():
    net = network(mlp(3, 4, 1), 3)
    assert PlannedNetwork(net.program) == net


class Fork(nn.Module):
    """One layer read by an activation, and past it by the last layer alone."""

    def __init__(self):
        super().__init__()
        self.first, self.past, self.through = nn.Conv1d(2, 4, 2), nn.Conv1d(4, 1, 2), nn.Conv1d(4, 1, 2)
        self.first.requires_grad_(False)  # so that Theta does not need K there

    def forward(self, x):
        h = self.first(x)
        return (self.past(h) + self.through(torch.relu(h))).flatten(1)


def test_half_is_kept_where_h_ends_for_one_reader_of_two():
    net = network(Fork(), 2, 6)
    read_twice = of_type(net, Conv)[0]
    assert (Cached.HALF, read_twice) in net.cache
    limit = ntkit.infinite_width(Fork(), b_std=0.3)
    x = normal(4, 2, 6)
    native, reference = (limit.both(x, engine=engine) for engine in ("native", "reference"))
    for a, b in zip(native, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)
