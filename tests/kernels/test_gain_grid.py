"""Kernels for a grid of gains are those of one limit after the other."""

import pytest
import torch
from tests.cases import Residual, mlp, normal
from torch import nn

import ntkit
from ntkit._src.trace import Tracer
from ntkit.errors import EngineError, InputError, InputTypeError

GRID = torch.tensor([[0.0, 0.0], [0.0, 2.0], [0.7, 0.0], [1.6, 0.02], [0.7, 2.0]], dtype=torch.float64)
IMAGES = nn.Sequential(
    nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), Residual(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.GELU()), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(16, 1),
)  # fmt: skip
CASES = {
    "relu": (mlp(5, 8, 8, 1), (5,), {}),
    "gelu": (mlp(5, 8, 8, 1, activation=nn.GELU), (5,), {}),
    "normalised": (nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1)), (5,), {}),
    "images": (IMAGES, (2, 4, 4), {}),
    "standard": (mlp(5, 8, 1), (5,), {"init": "standard"}),
    "overrides": (mlp(5, 8, 1), (5,), {"overrides": {"0": {"w_std": 0.5, "b_std": 0.3}}}),
}


def one_by_one(net, grid, x, other, options, **call):
    pairs = [ntkit.infinite_width(net, w, b, **options).both(x, other, **call) for w, b in grid.tolist()]
    return [torch.stack(kernels) for kernels in zip(*pairs, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_a_grid_is_the_same_as_one_limit_after_the_other(name, dtype):
    net, shape, options = CASES[name]
    grid = GRID[3:] if name == "images" else GRID
    limit, x, other = (
        ntkit.infinite_width(net, **options),
        normal(4, *shape).to(dtype),
        normal(3, *shape, seed=1).to(dtype),
    )
    for second in (None, other) if dtype == torch.float64 else (None,):
        found, slow = limit.both(x, second, gains=grid), one_by_one(net, grid, x, second, options, engine="reference")
        for kernels, expected in zip(found, slow, strict=True):
            assert kernels.dtype == dtype and kernels.shape == (len(grid), 4, 4 if second is None else 3)
            size = expected.abs().amax((1, 2), keepdim=True) + 1e-30
            assert float(((kernels - expected).abs() / size).max()) < (1e-12 if dtype == torch.float64 else 1e-6)
            assert second is not None or torch.equal(kernels, kernels.mT)
    assert torch.equal(limit.ntk(x, gains=grid), limit.both(x, gains=grid).ntk)


def test_inputs_of_very_different_size_keep_their_digits():
    net, x = mlp(5, 8, 8, 1), (normal(6, 5) * 10.0 ** torch.arange(-3, 3)[:, None]).float()
    grid = torch.tensor([[1.5, b] for b in (1e-3, 3e-3, 0.02, 0.7, 30.0)])
    found = ntkit.infinite_width(net).nngp(x, gains=grid).double()
    expected = one_by_one(net, grid, x.double(), None, {}, engine="reference")[1]
    deviations = expected.diagonal(dim1=1, dim2=2).sqrt()
    assert float(((found - expected).abs() / (deviations[:, :, None] * deviations[:, None])).max()) < 1e-6


def test_more_inputs_than_are_computed_together():
    net, x = mlp(5, 8, 1), normal(130, 5)
    assert torch.equal(ntkit.infinite_width(net).ntk(x, gains=GRID), one_by_one(net, GRID, x, None, {})[0])


def test_a_gain_beyond_the_range_of_the_native_engine():
    net, x = mlp(5, 8, 1, activation=nn.Tanh), normal(2, 5)
    grid = torch.tensor([[1.0, 0.1], [4.0, 0.1]])
    limit = ntkit.infinite_width(net)
    torch.testing.assert_close(limit.ntk(x, gains=grid), one_by_one(net, grid, x, None, {})[0], rtol=1e-10, atol=0)
    with pytest.raises(EngineError, match="native engine covers"):
        limit.ntk(x, gains=grid, engine="native")


def test_derivatives_by_the_grid():
    x, limit = normal(3, 5), ntkit.infinite_width(mlp(5, 8, 1))
    grid = torch.tensor([[1.2, 0.3], [0.8, 0.1]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda grid: limit.ntk(x, gains=grid), (grid,))
    found, expected = (
        torch.autograd.grad(limit.ntk(x, gains=grid, engine=engine).sum(), grid)[0]
        for engine in ("native", "reference")
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


def test_the_module_is_read_once_for_each_choice_of_zeros(monkeypatch):
    reads, read = [], Tracer._read
    monkeypatch.setattr(Tracer, "_read", lambda self, *key: (reads.append(key), read(self, *key))[1])
    limit, x = ntkit.infinite_width(mlp(5, 8, 1), b_std=0.1), normal(3, 5)
    limit.ntk(x)
    before = limit.program((5,))
    for w_std in (0.5, 1.0, 1.5):
        other = limit.with_gains(w_std, 0.2)
        other.ntk(x)
        assert other.program((5,)).structure is before.structure and other.program((5,)) is not before
    assert len(reads) == 1
    limit.with_gains(1.0, 0.0).ntk(x), limit.with_gains(2.0, 0.0).ntk(x)
    assert len(reads) == 2


def test_progress_counts_all_entries():
    seen = []
    ntkit.infinite_width(mlp(5, 8, 1)).ntk(
        normal(4, 5), gains=GRID, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (50, 50) and len(seen) == 5


def test_a_module_with_gains_of_its_own_has_no_others():
    net = mlp(5, 8, 1)
    ntkit.parametrize_ntk(net, w_std=1.5, b_std=0.5)
    limit, x = ntkit.infinite_width(net), normal(3, 5)
    assert torch.equal(limit.with_gains(None, None).ntk(x), limit.ntk(x))
    with pytest.raises(InputError, match="NTK parametrisation with w_std"):
        limit.ntk(x, gains=GRID)


@pytest.mark.parametrize(
    ("grid", "error", "says"),
    [
        ([[1.0, 0.0]], InputTypeError, "must be a torch.Tensor"),
        (torch.tensor([[1, 0]]), InputTypeError, "floating-point"),
        (torch.ones(3), InputError, r"shape \(g, 2\)"),
        (torch.ones(0, 2), InputError, r"shape \(g, 2\)"),
        (torch.tensor([[1.0, -0.5]]), InputError, "not be negative"),
        (torch.tensor([[1.0, torch.nan]]), InputError, "finite"),
    ],
)
def test_what_is_no_grid(grid, error, says):
    with pytest.raises(error, match=says):
        ntkit.infinite_width(mlp(5, 8, 1)).ntk(normal(3, 5), gains=grid)
    with pytest.raises(InputError, match="engine must be one of"):
        ntkit.infinite_width(mlp(5, 8, 1)).ntk(normal(3, 5), gains=GRID, engine="fast")
