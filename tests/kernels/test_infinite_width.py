"""The exact kernels against golden values, at hard points, and on bad input."""

import math
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch
from tests.cases import mlp, normal
from torch import nn
from torch.autograd import forward_ad

import ntkit
from ntkit._src.rules import diag, gram, pair_bytes
from ntkit.errors import EngineError, InputError, InputTypeError

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "infinite_width.npz"


class Erf(nn.Module):
    def forward(self, x):
        return torch.erf(x)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return x + self.fc(torch.relu(x))


def convs(*channels, **options):
    return [layer for a, b in pairwise(channels) for layer in (nn.Conv2d(a, b, 3, **options), nn.ReLU())]


NETWORKS = {
    "mlp3_relu": (mlp(7, 8, 8, 8, 1, bias=False), {"overrides": {"6": {"w_std": 1.0}}}),
    "mlp2_erf_bias": (mlp(7, 8, 8, 1, activation=Erf), {"w_std": 1.3, "b_std": 0.4}),
    "mlp2_gelu": (mlp(7, 8, 8, 1, activation=nn.GELU), {"b_std": 0.1}),
    "resmlp_relu": (nn.Sequential(nn.Linear(7, 8), Block(), Block(), nn.ReLU(), nn.Linear(8, 1)), {"b_std": 0.2}),
    "mlp_layernorm": (
        nn.Sequential(
            nn.Linear(7, 8), nn.LayerNorm(8, eps=1e-12, elementwise_affine=False), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(),
            nn.Linear(8, 1),
        ),
        {"b_std": 0.3},
    ),
    "conv2_flatten": (nn.Sequential(*convs(3, 8, 8, padding="same"), nn.Flatten(), nn.Linear(512, 1)), {"b_std": 0.1}),
    "conv3_gap": (
        nn.Sequential(*convs(3, 8, 8, 8, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1, bias=False)), {},
    ),
    "myrtle_small": (
        nn.Sequential(*convs(3, 8, padding=1), nn.AvgPool2d(2), *convs(8, 8, padding=1), nn.AvgPool2d(2), nn.Flatten(),
                      nn.Linear(32, 1)), {},
    ),
    "conv_stride_valid": (
        nn.Sequential(*convs(2, 8, stride=2), *convs(8, 8), nn.Flatten(), nn.Linear(32, 1)), {"b_std": 0.1},
    ),
    "conv_circular_gap": (
        nn.Sequential(*convs(2, 8, 8, padding=1, padding_mode="circular"), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                      nn.Linear(8, 1)),
        {"b_std": 0.1},
    ),
}  # fmt: skip

# At the point that x1 and x2 share, correlations in the golden file's own computation round to 1 - eps in these networks, which
# costs it half of its digits there: the exact value is computed with 40 digits below.
NOISY_AT_THE_SHARED_POINT = {"resmlp_relu", "mlp_layernorm", "conv2_flatten"}


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
@pytest.mark.parametrize("name", NETWORKS)
def test_golden_values(name):
    golden = np.load(GOLDEN)
    module, gains = NETWORKS[name]
    x1, x2 = (torch.tensor(golden[f"{name}/{x}"]) for x in ("x1", "x2"))
    limit = ntkit.infinite_width(module, **gains)
    for dtype, tolerance, engine in (
        (torch.float64, 1e-10, "reference"),
        (torch.float64, 1e-10, "auto"),
        (torch.float32, 1e-4, "auto"),
    ):
        both = limit.both(x1.to(dtype), x2.to(dtype), engine=engine)
        for kernel in ("ntk", "nngp"):
            expected = torch.tensor(golden[f"{name}/{kernel}"])
            found = getattr(both, kernel)
            assert found.dtype == dtype
            error = (found.double() / expected - 1).abs()
            if name in NOISY_AT_THE_SHARED_POINT and kernel == "ntk":
                assert error[1, 0] < max(1e-8, 1e-6 * (dtype == torch.float32))
                error[1, 0] = 0
            assert error.max() < tolerance


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not here")
@pytest.mark.parametrize("name", sorted(NOISY_AT_THE_SHARED_POINT))
def test_shared_point_with_forty_digits(name):
    """K(x, x) and Theta(x, x) of ReLU networks need no angle: E[relu^2] = q / 2 and E[relu'^2] = 1 / 2."""
    golden = np.load(GOLDEN)
    module, gains = NETWORKS[name]
    x = torch.tensor(golden[f"{name}/x1"][1:2])
    with mpmath.workdps(40):
        values = [mpmath.mpf(float(v)) for v in x.flatten()]
        if name == "conv2_flatten":
            expected = conv_flatten_variance(values, gains["b_std"])
        else:
            expected = vector_variance(values, gains["b_std"], name)
    limit = ntkit.infinite_width(module, **gains)
    for found in (limit.ntk(x, x.clone())[0, 0], limit.ntk.diag(x)[0]):
        assert abs(float(found) / float(expected) - 1) < 1e-14


def vector_variance(x, b_std, name):
    b = mpmath.mpf(b_std) ** 2
    q = 2 * sum(v * v for v in x) / len(x) + b
    theta = q
    if name == "mlp_layernorm":
        q, theta = mpmath.mpf(1) / (1 + mpmath.mpf("1e-12") / q), theta / (q + mpmath.mpf("1e-12"))
        for _ in range(2):
            q, theta = q + b, q + b + theta  # relu halves K and Theta, and w^2 = 2 doubles them again
        return theta
    for _ in range(2):
        q, theta = q + (q + b), theta + (q + b) + theta
    return (q + b) + theta


def conv_flatten_variance(x, b_std):
    b = mpmath.mpf(b_std) ** 2

    def box(k):
        near = [-1, 0, 1]
        pixels = {(i, j): k[i][j] for i in range(8) for j in range(8)}
        return [
            [sum(pixels.get((i + d, j + e), 0) for d in near for e in near) / mpmath.mpf(9) for j in range(8)]
            for i in range(8)
        ]

    k = [[sum(x[c * 64 + i * 8 + j] ** 2 for c in range(3)) / mpmath.mpf(3) for j in range(8)] for i in range(8)]
    k = [[2 * v + b for v in row] for row in box(k)]
    theta = k
    mean_k, mean_theta = box(k), box(theta)
    k = [[v + b for v in row] for row in mean_k]
    theta = [[v + t for v, t in zip(rk, rt, strict=True)] for rk, rt in zip(k, mean_theta, strict=True)]
    flat_k, flat_theta = (sum(map(sum, m)) / 64 for m in (k, theta))
    return flat_k + b + flat_theta


def test_repeated_and_nearly_repeated_points():
    """Rows that coincide have correlation one to the bit; rows a hair apart keep the digits their difference has."""
    x = normal(6, 784)
    x[3:] = x[:3]
    x[5] = x[2] * (1 + 1e-9)
    limit = ntkit.infinite_width(mlp(784, 8, 8, 1))
    k, variance = limit.ntk(x, x), limit.ntk.diag(x)
    assert torch.equal(k[[0, 1], [3, 4]], k[[0, 1], [0, 1]])
    # The product of two deviations sqrt(q) is q but for a rounding in each of two layers.
    torch.testing.assert_close(k.diagonal(), variance, rtol=4 * torch.finfo(x.dtype).eps, atol=0)
    # ReLU networks are homogeneous: Theta(x, c x) = c Theta(x, x).
    assert abs(float(k[2, 5] / variance[2]) - (1 + 1e-9)) < 1e-14


@pytest.mark.parametrize("gains", [{"w_std": 1.5}, {"b_std": 0.3}, {"overrides": {"2": {"w_std": 0.8}}}])
def test_gradients_in_gains(gains):
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    x = normal(3, 3)

    def value(t):
        own = {name: ({"2": {"w_std": t}} if name == "overrides" else t) for name in gains}
        return ntkit.infinite_width(net, **own).ntk(x).sum()

    start = next(iter(gains.values()))
    start = start["2"]["w_std"] if isinstance(start, dict) else start
    t = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(value(t), t)
    step = 1e-6
    slope = (value(start + step) - value(start - step)) / (2 * step)
    torch.testing.assert_close(gradient, slope, rtol=1e-7, atol=0)


def test_zero_input():
    x = torch.cat([torch.zeros(1, 4, dtype=torch.float64), normal(2, 4)])
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    for kernel in (ntkit.infinite_width(net).ntk, ntkit.infinite_width(net, b_std=0.1).ntk):
        x.requires_grad_(True)
        k = kernel(x)
        assert torch.isfinite(k).all()
        (gradient,) = torch.autograd.grad(k.sum(), x)
        assert torch.isfinite(gradient).all()
    assert abs(float(ntkit.infinite_width(net).ntk(x.detach())[0, 0])) < 1e-30


def test_arora_gap_network_with_fixed_ends():
    """Freezing the first and last weights leaves only the middle layer's part of the kernel."""
    net = nn.Sequential(*convs(2, 8, 8, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1, bias=False))
    x = normal(3, 2, 4, 4)
    whole = ntkit.infinite_width(net).ntk(x)
    parts = []
    for trained in (0, 2, 6):
        net.requires_grad_(False)
        net[trained].weight.requires_grad_(True)
        parts.append(ntkit.infinite_width(net).ntk(x))
    torch.testing.assert_close(sum(parts), whole)
    net.requires_grad_(False)
    assert not ntkit.infinite_width(net).ntk(x).any()


def test_standard_parametrisation_adds_layer_by_layer():
    """Theta = sum of fan-ins times each layer's own part: the NTK part divided by w^2, times the fan-in."""
    net = mlp(5, 16, 1, bias=False)
    x = normal(3, 5)
    parts = []
    for trained in (0, 2):
        net.requires_grad_(False)
        net[trained].requires_grad_(True)
        parts.append(ntkit.infinite_width(net, w_std=1.3).ntk(x) / 1.3**2)
    net.requires_grad_(True)
    torch.testing.assert_close(
        ntkit.infinite_width(net, w_std=1.3, init="standard").ntk(x), 5 * parts[0] + 16 * parts[1]
    )


def test_torch_initialisation_is_pytorchs():
    """The variances that init="torch" assumes are those of freshly made layers."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 4096)
    rule = ntkit._src.trace.GainRule(init="torch")("", 64, True, True, True)
    assert math.isclose(float(layer.weight.detach().var()), rule.w_std**2 / 64, rel_tol=0.02)
    assert math.isclose(float(layer.bias.detach().var()), rule.b_std**2, rel_tol=0.1)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros((2, 4)), InputTypeError, "torch.as_tensor"),
        (torch.zeros(2, 4, dtype=torch.int64), InputTypeError, "floating-point"),
        (torch.zeros(2, 4, dtype=torch.float16), InputTypeError, "half precision"),
        (torch.zeros(4), InputError, "batch dimension"),
        (torch.zeros(0, 4), InputError, "at least one row"),
        (torch.tensor([[1.0, 2, 3, 4], [1, 2, math.nan, 4]]), InputError, "first in row 1"),
        (torch.tensor([[1.0, 2, math.inf, 4]]), InputError, "finite"),
        (torch.zeros(2, 5), InputError, "cannot take inputs of shape"),
        (torch.zeros(2, 3, 5), InputError, "cannot take inputs of shape"),
    ],
)
def test_bad_input(x, error, message):
    limit = ntkit.infinite_width(mlp(4, 8, 1))
    for call in (limit.ntk, limit.nngp.diag, limit.both):
        with pytest.raises(error, match=message):
            call(x)


@pytest.mark.parametrize(
    ("x2", "error", "message"),
    [
        (torch.zeros(2, 4, dtype=torch.float64), InputTypeError, "same dtype"),
        (torch.zeros(2, 4, device="meta"), InputTypeError, "hold values"),
        (torch.zeros(2, 5), InputError, "same shape"),
    ],
)
def test_bad_pairs(x2, error, message):
    limit = ntkit.infinite_width(mlp(4, 8, 1))
    with pytest.raises(error, match=message):
        limit.ntk(torch.ones(2, 4), x2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"w_std": -1.0}, "w_std must be finite and at least 0"),
        ({"b_std": math.nan}, "b_std must be finite"),
        ({"w_std": "two"}, "must be a number"),
        ({"w_std": torch.ones(2)}, "one element"),
        ({"init": "xavier"}, "'ntk', 'standard', 'torch'"),
        ({"init": "torch", "w_std": 1.0}, "have no effect"),
        ({"overrides": {"0": {"gain": 1.0}}}, '"w_std" and "b_std"'),
        ({"overrides": ["0"]}, "overrides must be a mapping"),
        ({"overrides": {"7": {"w_std": 1.0}}}, "does not use"),
    ],
)
def test_bad_gains(arguments, message):
    net = mlp(4, 8, 1)
    with pytest.raises((ValueError, TypeError), match=message):
        ntkit.infinite_width(net, **arguments).ntk(torch.ones(2, 4))


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_overflow_is_an_error(engine):
    limit = ntkit.infinite_width(mlp(4, 8, 1))
    x = torch.full((2, 4), 1e200, dtype=torch.float64)
    with pytest.raises(InputError, match="too large"):
        limit.ntk(x, engine=engine)
    with pytest.raises(InputError, match="too large"):
        limit.nngp.diag(x)
    with pytest.raises(InputError, match="too large"):
        limit.nngp(torch.full((2, 4), 1e30), engine=engine)  # fits float64, not the float32 of the result


@pytest.mark.parametrize("shape", [5, "abc", (0,), (-1, 3), (2.5,)])
def test_bad_input_shape(shape):
    limit = ntkit.infinite_width(mlp(4, 8, 1))
    with pytest.raises((InputError, InputTypeError), match="input_shape must be"):
        limit.explain(shape)


@pytest.mark.parametrize("batch", [torch.ones(50, 4), torch.ones(50, 4).numpy()])
def test_a_batch_is_no_input_shape(batch):
    limit = ntkit.infinite_width(mlp(4, 8, 1))
    with pytest.raises(InputError, match=r"of shape \(50, 4\) and dtype .*tuple\(x.shape\[1:\]\)") as raised:
        limit.explain(batch)
    assert len(str(raised.value)) < 300


def test_engines():
    limit = ntkit.infinite_width(mlp(4, 8, 1))
    x = normal(3, 4)
    assert torch.equal(limit.ntk(x), limit.ntk(x, engine="native"))
    with pytest.raises(InputError, match="engine must be"):
        limit.ntk(x, engine="fast")
    with pytest.raises(EngineError, match="the input belongs to a transform"):
        torch.func.jacrev(lambda x: limit.ntk(x, engine="native"))(x)
    with forward_ad.dual_level():
        gain = forward_ad.make_dual(torch.tensor(1.0), torch.tensor(1.0))
        with pytest.raises(EngineError, match="a gain is a dual number"):
            ntkit.infinite_width(nn.Sequential(nn.Linear(4, 1)), w_std=gain).ntk(x, engine="native")
    smooth = ntkit.infinite_width(nn.Sequential(nn.Linear(4, 8), nn.Hardtanh(), nn.Linear(8, 1)))
    with pytest.raises(EngineError, match=r"1: hardtanh \(.*\)\. Write engine=\"reference\""):
        smooth.ntk(x, engine="native")
    assert smooth.explain((4,)).rows[0].engine == "reference"
    assert torch.equal(smooth.ntk(x), smooth.ntk(x, engine="reference"))


def test_only_auto_leaves_the_native_engine_beyond_a_range():
    limit = ntkit.infinite_width(mlp(4, 8, 1, activation=nn.Tanh))
    near, far = 0.1 * normal(3, 4), 10 * normal(3, 4)
    refusal = r'1 \(tanh\): .* up to 2\. Got up to \d+\.?\d*\. Write engine="auto" or engine="reference"'
    for x1, x2 in ((far, None), (far, near), (near, far)):
        with pytest.raises(EngineError, match=refusal):
            limit.both(x1, x2, engine="native")
        for found, exact in zip(limit.both(x1, x2), limit.both(x1, x2, engine="reference"), strict=True):
            assert torch.equal(found, exact)  # the same engine
    limit.both(near, engine="native")
    for kernel in (limit.ntk, limit.nngp):
        with pytest.raises(EngineError, match=refusal):
            kernel.diag(far, engine="native")
        assert torch.equal(kernel.diag(far), kernel.diag(far, engine="reference"))


def test_progress_counts_every_entry_once():
    limit = ntkit.infinite_width(nn.Sequential(*convs(1, 4, padding=1), nn.Flatten(), nn.Linear(64, 1)))
    program = limit.program((1, 4, 4))
    x = normal(7, 1, 4, 4)
    for x2, total in ((None, 28), (x[:5], 35)):
        calls = []
        gram(program, x, x2, ntk=True, nngp=False, byte_budget=4 * pair_bytes(program, program.cross_keeps, True),
             progress=lambda done, there, calls=calls: calls.append((done, there)))  # fmt: skip
        assert [there for _, there in calls] == [total] * len(calls)
        assert calls[-1][0] == total
        assert sorted(set(calls)) == calls
        assert len(calls) > 5


def test_memory_stays_within_the_budget():
    """Tiles are chosen so that all tensors of a tile together fit; torch's own allocations are counted."""
    net = nn.Sequential(*convs(2, 8, 8, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1))
    program = ntkit.infinite_width(net).program((2, 8, 8))
    x = normal(24, 2, 8, 8)
    budget = 4 << 20  # below the size of a tile, so that it is the budget that binds
    for work in (
        lambda: gram(program, x, None, True, True, byte_budget=budget),
        lambda: diag(program, x, True, budget),
    ):
        with torch.profiler.profile(profile_memory=True) as profile:
            work()
        live = peak = 0
        events = sorted(
            (e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns()
        )
        for event in events:
            live += event.nbytes()
            peak = max(peak, live)
        assert peak < 1.25 * budget
