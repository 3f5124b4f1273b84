"""Native derivatives against those of the reference engine, for every operation that has them."""

import numpy as np
import pytest
import torch
from tests.cases import Function, Residual, mlp, normal
from torch import nn

import ntkit
from ntkit._src.native import _core, _pull_back
from ntkit._src.native._pull_back import PullBack

VECTORS, IMAGES, SEQUENCES = (5,), (2, 6, 6), (2, 6)


def convs(*layers, head=36, **options):
    """Two convolutions with rectifiers, other layers between them, and a linear head that reads so many positions."""
    first, second = nn.Conv2d(2, 4, 3, padding=1, **options), nn.Conv2d(4, 4, 3, padding=1, **options)
    return nn.Sequential(first, nn.ReLU(), *layers, second, nn.ReLU(), nn.Flatten(), nn.Linear(4 * head, 1))


def smooth(function, *more):
    return nn.Sequential(nn.Linear(5, 8), Function(function), *more, nn.Linear(8, 1))


AVERAGE = nn.Sequential(
    nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(4, 1),
)  # fmt: skip

DILATED = nn.Sequential(
    nn.Conv1d(2, 4, 3, padding=2, dilation=2), nn.GELU(), nn.Conv1d(4, 4, 2), nn.GELU(), nn.Flatten(), nn.Linear(20, 1)
)
CIRCULAR = nn.Sequential(
    nn.Conv1d(2, 4, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
    nn.Linear(4, 1),
)  # fmt: skip
RESIDUAL = nn.Sequential(
    nn.Conv2d(2, 4, 3, padding=1), Residual(nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)), nn.ReLU(), nn.Flatten(),
    nn.Linear(144, 1),
)  # fmt: skip

NETWORKS = {
    "relu": (mlp(5, 8, 8, 1), VECTORS),
    "no bias": (mlp(5, 8, 8, 1, bias=False), VECTORS),
    "bias at the end": (nn.Sequential(nn.Linear(5, 8, bias=False), nn.ReLU(), *mlp(8, 8, 1)), VECTORS),
    "leaky": (mlp(5, 8, 8, 1, activation=lambda: nn.LeakyReLU(0.2)), VECTORS),
    "gelu": (mlp(5, 8, 8, 1, activation=nn.GELU), VECTORS),
    "erf": (smooth(torch.erf, nn.Linear(8, 8), nn.ReLU()), VECTORS),
    "sine": (smooth(torch.sin, nn.Linear(8, 8), nn.ReLU()), VECTORS),
    "cosine": (smooth(torch.cos), VECTORS),
    "exponential": (smooth(torch.exp), VECTORS),
    "polynomial": (smooth(lambda z: z**3 - z**2, nn.Linear(8, 8), nn.ReLU()), VECTORS),
    "layer norm": (nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), *mlp(8, 8, 1)), VECTORS),
    "norm and gain": (nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1)), VECTORS),
    "frozen": (nn.Sequential(nn.Linear(5, 8).requires_grad_(False), nn.ReLU(), nn.Linear(8, 1)), VECTORS),
    "residual": (nn.Sequential(nn.Linear(5, 8), Residual(nn.ReLU(), nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 1)), VECTORS),
    "convolutions": (convs(), IMAGES),
    "stride": (convs(nn.Conv2d(4, 4, 3, stride=2), nn.ReLU(), head=4), IMAGES),
    "circular": (convs(padding_mode="circular"), IMAGES),
    "dilated": (DILATED, SEQUENCES),
    "pooled inside": (convs(nn.AvgPool2d(3, 2, 1, count_include_pad=False), head=9), IMAGES),
    "pooled at the end": (AVERAGE, IMAGES),
    "average of circular": (CIRCULAR, SEQUENCES),
    "group norm": (convs(nn.Conv2d(4, 4, 1), nn.GroupNorm(1, 4, affine=False), nn.ReLU()), IMAGES),
    "residual images": (RESIDUAL, IMAGES),
}  # fmt: skip


def batches(shape):
    """Equal, opposite, longer and nearly equal inputs among the others."""
    x, z = normal(4, *shape), normal(11, *shape, seed=1)
    z[0], z[1], z[2], z[3] = x[1], -x[2], 2 * x[3], x[0] + 1e-2 * z[3]
    return x, z


def derivatives(limit, engine, x, z, *more):
    """Differentiate weighted sums of both kernels by all of their sources."""
    x = x.clone().requires_grad_()
    z = None if z is None else z.clone().requires_grad_()
    kernels = limit.both(x, z, engine=engine)
    total = sum((kernel * normal(*kernel.shape, seed=2 + i)).sum() for i, kernel in enumerate(kernels))
    return torch.autograd.grad(total, [t for t in (x, z, *more) if t is not None])


def assert_close(found, expected, tolerance=1e-9):
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).abs().max()) <= tolerance * float(b.abs().max())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("b_std", [0.0, 0.3])
def test_derivatives_by_both_inputs(name, b_std):
    net, shape = NETWORKS[name]
    if b_std and name == "no bias":
        pytest.skip("it has no biases")
    limit = ntkit.infinite_width(net, b_std=b_std) if b_std else ntkit.infinite_width(net)
    x, z = batches(shape)
    for other in (z, None):
        assert_close(derivatives(limit, "native", x, other), derivatives(limit, "reference", x, other))


@pytest.mark.parametrize(
    ("name", "init"),
    [
        ("relu", "standard"),
        ("gelu", "ntk"),
        ("layer norm", "ntk"),
        ("convolutions", "ntk"),
        ("pooled inside", "ntk"),
        ("pooled at the end", "standard"),
    ],
)
def test_derivatives_by_gains(name, init):
    net, shape = NETWORKS[name]
    x, z = batches(shape)
    for other in (z, None):
        found = []
        for engine in ("native", "reference"):
            w, b = (torch.tensor(gain, dtype=torch.float64, requires_grad=True) for gain in (1.3, 0.4))
            found.append(derivatives(ntkit.infinite_width(net, w, b, init=init), engine, x, other, w, b))
        assert_close(*found)


def test_derivatives_where_variances_vanish():
    x, z = batches(IMAGES)
    x[0], z[5], x[1, :, :3] = 0, 0, 0
    limit = ntkit.infinite_width(convs())
    found = derivatives(limit, "native", x, z)
    assert all(bool(torch.isfinite(value).all()) for value in found)
    assert_close(found, derivatives(limit, "reference", x, z))


def test_many_tiles_are_one(monkeypatch):
    limit, (x, z) = ntkit.infinite_width(convs(), b_std=0.2), batches(IMAGES)
    whole = derivatives(limit, "native", x, z)
    monkeypatch.setattr(_pull_back, "_ROWS", 3)
    monkeypatch.setattr(_pull_back, "_COLUMNS", 5)
    assert_close(derivatives(limit, "native", x, z), whole, 1e-13)


def test_vectors_beyond_one_tile_of_products():
    limit, x, z = ntkit.infinite_width(mlp(3, 8, 1), b_std=0.1), normal(530, 3), normal(20, 3, seed=1)
    assert_close(derivatives(limit, "native", x, z), derivatives(limit, "reference", x, z))


def test_average_runs_in_segments_of_few_planes():
    """The planes of one offset after the other: their number does not grow with that of offsets."""
    program = ntkit.infinite_width(AVERAGE).program(IMAGES)
    assert PullBack(program).missing is None
    plan, segments, _ = PullBack(program)._plan(True)
    assert len(segments) > 20
    assert len(plan.tape.slots) < 20


def test_what_has_no_derivatives_is_named():
    limit = ntkit.infinite_width(mlp(3, 8, 1, activation=nn.Tanh))
    assert PullBack(limit.program((3,))).missing == "the native engine has no derivatives of series"
    x = normal(3, 3).requires_grad_()
    with pytest.raises(ntkit.errors.EngineError, match="no derivatives of series"):
        limit.ntk(x, engine="native")
    expected = torch.autograd.grad(limit.ntk(x, engine="reference").sum(), x)[0]
    assert torch.equal(torch.autograd.grad(limit.ntk(x).sum(), x)[0], expected)


def test_the_core_refuses_what_does_not_fit():
    back = PullBack(ntkit.infinite_width(mlp(3, 8, 1)).program((3,)))
    plan, segments, _ = back._plan(True)
    batch = back._runner._read(normal(2, 3), torch.float64, 512)
    given = {
        "segments": segments, "data1": batch.data, "cache1": batch.cache, "data2": batch.data, "cache2": batch.cache,
        "products": np.zeros((1, 1, 1, 512, 512)), "nngp": None, "ntk": np.ones((2, 2)), "to_data": np.zeros((2, 3)),
        "to_cache": np.zeros((2, plan.cache_size)), "to_products": np.zeros((1, 2, 2)), "to_gains": None, "threads": 1,
    }  # fmt: skip
    _core.pull_back(plan.tape, **given)
    for wrong, message in (
        ({"segments": (1,)}, "segments"),
        ({"ntk": np.ones((2, 3))}, "derivatives"),
        ({"to_cache": np.zeros((2, 1))}, "a result"),
        ({"data2": np.zeros((2, 3))}, "rows of data"),
    ):
        with pytest.raises(ValueError, match=message):
            _core.pull_back(plan.tape, **given | wrong)
