"""Inputs that are nearly parallel but of different size, in networks whose first layers scale along with their input."""

from __future__ import annotations

import pytest
import torch
from mpmath import mpf
from tests.cases import Function, Residual, normal
from tests.rules.high_precision import duals, kernels
from torch import Tensor, nn

import ntkit
from ntkit._src.native._network import PlannedNetwork
from ntkit._src.native._rescaling import scaling, with_rescaling
from ntkit._src.native.families import Rescale
from ntkit._src.program import Dense, Pointwise

APART = (1e-1, 1e-3, 1e-5, 1e-7, 1e-9, 1e-11, 0.0)
SIZES = (1e-3, 0.5, 1.001, 1.7, 1e3)


def linear(bias: bool = True, first: bool = False) -> nn.Linear:
    return nn.Linear(20 if first else 8, 8, bias=bias)


def conv(bias: bool = True, first: bool = False) -> nn.Conv2d:
    return nn.Conv2d(3 if first else 8, 8, 3, padding=1, bias=bias)


VECTORS, IMAGES = (20,), (3, 6, 6)
AVERAGE = nn.AdaptiveAvgPool2d(1), nn.Flatten()

# Which are rescaled, and how often.
NETWORKS: dict[str, tuple[tuple[int, ...], nn.Module, int]] = {
    "one hidden layer": (VECTORS, nn.Sequential(linear(False, True), nn.ReLU(), linear()), 1),
    "bias from the third layer on": (
        VECTORS,
        nn.Sequential(linear(False, True), nn.LeakyReLU(0.1), linear(False), nn.ReLU(), linear(), nn.ReLU(), linear()),
        1,
    ),
    "two branches": (
        VECTORS,
        nn.Sequential(
            linear(False, True), Residual(nn.ReLU(), linear(), nn.ReLU(), linear(False)), nn.ReLU(), linear()
        ),
        2,  # what the branch reads, and what is added to it
    ),
    "before GELU": (
        VECTORS,
        nn.Sequential(linear(False, True), nn.ReLU(), linear(False), nn.GELU(), linear()),
        1,
    ),
    "before a normalisation": (
        VECTORS,
        nn.Sequential(linear(False, True), nn.ReLU(), linear(False), nn.LayerNorm(8), nn.ReLU(), linear()),
        0,
    ),
    "a normalisation first": (
        VECTORS,
        nn.Sequential(linear(False, True), nn.LayerNorm(8), nn.ReLU(), linear()),
        0,
    ),
    "a branch beside a normalisation": (
        VECTORS,
        nn.Sequential(linear(False, True), Residual(nn.LayerNorm(8), nn.ReLU(), linear()), nn.ReLU(), linear()),
        1,
    ),
    "padding": (
        IMAGES,
        nn.Sequential(conv(False, True), nn.ReLU(), conv(), nn.ReLU(), nn.Flatten(), nn.Linear(288, 1)),
        1,
    ),
    "pooling": (
        IMAGES,
        nn.Sequential(conv(False, True), nn.ReLU(), nn.AvgPool2d(2), conv(), nn.ReLU(), *AVERAGE, linear()),
        1,
    ),
    "a bias at the end alone": (
        IMAGES,
        nn.Sequential(conv(False, True), nn.ReLU(), conv(False), nn.ReLU(), *AVERAGE, linear()),
        1,
    ),
}

UNCHANGED = {
    "no bias": (VECTORS, nn.Sequential(linear(False, True), nn.ReLU(), linear(False))),
    "a bias in the first layer": (VECTORS, nn.Sequential(linear(True, True), nn.ReLU(), linear())),
    "no angle before the first bias": (VECTORS, nn.Sequential(linear(False, True), linear(), nn.ReLU(), linear())),
    "a smooth activation first": (VECTORS, nn.Sequential(linear(False, True), nn.GELU(), linear())),
    "a constant first": (
        VECTORS,
        nn.Sequential(Function(lambda x: x + 1), linear(True, True), nn.ReLU(), linear()),
    ),
}


def near(shape: tuple[int, ...], size: float) -> Tensor:
    """Give an input of norm one, and at each distance from it another of another size."""
    x, direction = (one / one.norm() for one in (normal(*shape, seed=2), normal(*shape, seed=1)))
    return torch.stack([x, *(size * (x + d * direction) for d in APART)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "depth", "residual"), [("relu", 1, False), ("leaky", 1, False), ("relu", 3, False), ("relu", 2, True)]
)
def test_fully_connected_in_80_digits(name: str, depth: int, residual: bool, size: float) -> None:
    phi: dict[str, nn.Module] = {"relu": nn.ReLU(), "leaky": nn.LeakyReLU(0.1)}
    layers: list[nn.Module] = [linear(False, True)]
    for _ in range(depth):
        layers += [Residual(phi[name], linear())] if residual else [phi[name], linear()]
    x = near(VECTORS, size)
    limit = ntkit.infinite_width(nn.Sequential(*layers), w_std=1.3, b_std=0.5)
    found = limit.both(x[:1], x, engine="native")
    for row, *values in zip(x.tolist(), found.ntk[0].tolist(), found.nngp[0].tolist(), strict=True):
        exact = kernels(duals[name], depth, x[0].tolist(), row, 1.3, 0.5, residual, first_bias=False)
        for value, right in zip(values, exact, strict=True):
            assert abs((mpf(value) - right) / right) < 1e-13


@pytest.mark.parametrize("size", [1.7, 1e3])
@pytest.mark.parametrize("name", NETWORKS)
def test_as_the_reference_engine(name: str, size: float) -> None:
    shape, net, _ = NETWORKS[name]
    x = near(shape, size)
    limit = ntkit.infinite_width(net, b_std=0.5)
    # The eps of a normalisation lets sizes differ a little behind it. Rows of equal size are not asked: pooling rounds those.
    bound = 5e-12 if "normalisation" in name else 5e-13
    native, reference = (limit.both(x[:1], x, engine=engine) for engine in ("native", "reference"))
    for one, exact in zip(native, reference, strict=True):
        torch.testing.assert_close(one, exact, rtol=bound, atol=0)
    for kernel in (limit.ntk, limit.nngp):
        gram = kernel(x, engine="native")
        assert torch.equal(gram, gram.T)
        torch.testing.assert_close(kernel.diag(x, engine="native"), gram.diagonal(), rtol=1e-13, atol=0)


@pytest.mark.parametrize("size", [1.7, 1e3])
@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision(name: str, size: float) -> None:
    shape, net, _ = NETWORKS[name]
    x = near(shape, size).float()
    limit = ntkit.infinite_width(net, b_std=0.5)
    single, exact = limit.both(x[:1], x, engine="native"), limit.both(x[:1].double(), x.double(), engine="reference")
    for one, right in zip(single, exact, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), right, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("init", ["ntk", "standard"])
@pytest.mark.parametrize("name", NETWORKS)
def test_ordinary_inputs_and_hard_ones(name: str, init: str, dtype: torch.dtype) -> None:
    """Opposite, equal and zero inputs, and sizes from 1e-10 to 1e10; a bias that is trained without variance has its own unit."""
    shape, _, _ = NETWORKS[name]
    trained = {"0": {"b_std": 0.0}}
    biased = nn.Sequential(*NETWORKS[name][1])
    first = biased[0]
    assert isinstance(first, (nn.Linear, nn.Conv2d))
    biased[0] = linear(True, True) if isinstance(first, nn.Linear) else conv(True, True)
    x = normal(8, *shape)
    x[1], x[2], x[3], x[4] = x[0], -x[0], 0, 3 * x[0]
    if "normalisation" not in name and "GELU" not in name:  # those do not scale inputs
        x[6] = 1e10 * x[6]
        if name != "pooling":  # there, one of the engines rounds the difference from zero
            x[5] = 1e-10 * x[5]
    x = x.to(dtype)
    limit = ntkit.infinite_width(biased, b_std=0.3, init=init, overrides=trained)
    native, exact = limit.both(x, engine="native"), limit.both(x.double(), engine="reference")
    for one, right in zip(native, exact, strict=True):
        scale = right.diagonal().sqrt()
        bound = 1e-6 if dtype == torch.float32 else 1e-12
        assert float(((one.double() - right).abs() / (scale[:, None] * scale)).max()) < bound


LOSSES = {
    "SELU after a layer without bias": (nn.Sequential(linear(False, True), nn.SELU(), linear()), 0.1, 1e-8),
    "a normalisation below its eps": (NETWORKS["a normalisation first"][1], 1e-3, 1e-9),
    "no bias": (nn.Sequential(linear(False, True), nn.ReLU(), linear(False)), 1.7, 1e-11),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_still_lost(name: str) -> None:
    """The bounds of docs/performance.md."""
    net, size, bound = LOSSES[name]
    x = near(VECTORS, size)
    limit = ntkit.infinite_width(net, b_std=0.5)
    native, reference = (limit.ntk(x[:1], x, engine=engine) for engine in ("native", "reference"))
    torch.testing.assert_close(native, reference, rtol=bound, atol=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_where_the_scale_changes(name: str) -> None:
    shape, net, count = NETWORKS[name]
    program = ntkit.infinite_width(net, b_std=0.5).program(shape)
    changed = with_rescaling(program)
    assert changed is not program
    along = scaling(changed)
    made = [index for index, node in enumerate(changed.nodes) if isinstance(node.op, Rescale)]
    assert len(made) == count
    assert all(along[changed.nodes[index].inputs[0]] and not along[index] for index in made)
    assert [node.op for node in changed.nodes if not isinstance(node.op, Rescale)] == [
        node.op for node in program.nodes
    ]
    network = PlannedNetwork(program)
    assert network.rescales and network.units == 3 and min(network.cache.values()) == 3
    assert network.unit_at(network.inputs[0]) == 1 and network.unit_at(network.program.output) == 0


@pytest.mark.parametrize("name", UNCHANGED)
def test_networks_that_need_no_scale_of_their_own_keep_their_tapes(name: str) -> None:
    shape, net = UNCHANGED[name]
    program = ntkit.infinite_width(net, b_std=0.5).program(shape)
    assert with_rescaling(program) is program
    network = PlannedNetwork(program)
    assert not network.rescales and network.units == 1
    assert {network.unit_at(index) for index in range(len(program.nodes))} == {0}


def test_what_scales_along() -> None:
    shape, net, _ = NETWORKS["bias from the third layer on"]
    program = ntkit.infinite_width(net, b_std=0.5).program(shape)
    along = [(type(node.op), scales) for node, scales in zip(program.nodes, scaling(program), strict=True)]
    assert [scales for kind, scales in along if kind is Dense] == [True, True, False, False]
    assert [scales for kind, scales in along if kind is Pointwise] == [True, True, False]
