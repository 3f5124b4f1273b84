"""Smooth activations of the native engine against 80 digits, at variances where the plain formulas cancel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from mpmath import mpf, sqrt
from tests.cases import Function, normal
from tests.rules.high_precision import duals, kernels
from torch import Tensor, nn

import ntkit

ENGINES = ("native", "reference")


def _limit(activation: nn.Module, depth: int, b_std: float) -> ntkit.results.InfiniteWidth:
    layers: list[nn.Module] = [nn.Linear(5, 7)]
    for _ in range(depth):
        layers += [activation, nn.Linear(7, 7)]
    return ntkit.infinite_width(nn.Sequential(*layers), w_std=1.3, b_std=b_std)


def _rows(size: float) -> Tensor:
    """Unit rows of one size: two directions, a multiple, a near duplicate, and one that is obtuse to the first."""
    rows = normal(3, 5)
    a, b, c = rows / rows.norm(dim=1, keepdim=True)
    return size * torch.stack([a, b, 2 * a, a + 1e-7 * c, b - 1.5 * a])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("b_std", [0.0, 0.3])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e2, 1e4, 1e6])
def test_gelu_at_every_size(size: float, b_std: float, engine: str) -> None:
    x, limit = _rows(size), _limit(nn.GELU(), 1, b_std)
    found = limit.both(x, x.clone(), engine=engine)
    diagonal = limit.ntk.diag(x, engine=engine), limit.nngp.diag(x, engine=engine)
    for i, first in enumerate(x.tolist()):
        for j, second in enumerate(x.tolist()):
            exact = kernels(duals["gelu"], 1, first, second, 1.3, b_std)
            # Row 2 is parallel, or nearly, to rows 0 and 3, and of another size: the small angle, which large variances make
            # visible, is found from deviations rounded to eps.
            bound = 1e-12 + (2e-16 * size if {i, j} in ({0, 2}, {2, 3}) else 0)
            for which, kernel in enumerate(found):
                assert abs((mpf(float(kernel[i, j])) - exact[which]) / exact[which]) < bound, (i, j)
                if i == j:
                    assert abs((mpf(float(diagonal[which][i])) - exact[which]) / exact[which]) < 1e-14


@pytest.mark.parametrize("engine", ENGINES)
def test_gelu_of_opposite_inputs(engine: str) -> None:
    """The NNGP kernel of x and -x falls like 1 / |x|, the difference of two terms that grow like |x|."""
    x, limit = _rows(1.0)[:1], _limit(nn.GELU(), 1, 0.0)
    for size in (1.0, 10.0, 1e3, 1e5):
        ntk, nngp = limit.both(size * x, -size * x, engine=engine)
        exact = kernels(duals["gelu"], 1, (size * x[0]).tolist(), (-size * x[0]).tolist(), 1.3, 0.0)
        assert abs(mpf(float(nngp)) / exact[1] - 1) < 1e-12
        assert abs(mpf(float(ntk)) / exact[0] - 1) < 1e-12


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine_at_huge_variances(name: str, depth: int, engine: str) -> None:
    """An input with itself, its copy, its multiples and its opposite: exponents of large numbers whose difference is small."""
    x = _rows(1.0)[0]
    limit = _limit(Function(getattr(torch, name)), depth, 0.0)
    for size in (1.0, 1e3, 1e6):
        first = size * x
        others = torch.stack([first, -first, first * (1 + 2.0**-20 / size)])
        found = limit.both(first[None], others, engine=engine)
        diagonal = limit.ntk.diag(others, engine=engine)
        assert torch.allclose(found.ntk[0, 0], diagonal[0], rtol=1e-14, atol=0)
        for j, other in enumerate(others.tolist()):
            exact = kernels(duals[name], depth, first.tolist(), other, 1.3, 0.0)
            own = kernels(duals[name], depth, first.tolist(), first.tolist(), 1.3, 0.0)
            for which, kernel in enumerate(found):
                assert abs(mpf(float(kernel[0, j])) - exact[which]) < 1e-12 * sqrt(own[which] ** 2)


GAINED: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": torch.exp,
    "polynomial": lambda z: z**3 - 2 * z,
}


@pytest.mark.parametrize("eps", [1e-5, 1e4])
@pytest.mark.parametrize("name", GAINED)
def test_trained_gains(name: str, eps: float) -> None:
    """E[u phi'(u) v phi'(v)] of variances near one and, with a large eps, near zero."""
    layers = [nn.Linear(5, 7), nn.LayerNorm(7, eps), Function(GAINED[name]), nn.Linear(7, 1)]
    limit = ntkit.infinite_width(nn.Sequential(*layers), w_std=1.3, b_std=0.2)
    x = torch.cat([_rows(1.0), -_rows(1.0)[:1], 0 * _rows(1.0)[:1]])
    exact = limit.ntk(x, x.clone(), engine="reference")
    torch.testing.assert_close(
        limit.ntk(x, x.clone(), engine="native"), exact, rtol=1e-11, atol=1e-13 * float(exact.max())
    )
    torch.testing.assert_close(limit.ntk.diag(x), exact.diagonal(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["gelu", "erf"])
@pytest.mark.parametrize("affine", ["shared", "of each position"])
def test_trained_gains_of_positions(name: str, affine: str) -> None:
    """Two positions share the trained gain of a channel, or have their own."""
    norm = nn.GroupNorm(1, 4) if affine == "shared" else nn.LayerNorm((4, 3, 5))
    layers = [
        nn.Conv2d(2, 4, 3, padding=1),
        norm,
        Function(GAINED[name]),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    ]
    limit = ntkit.infinite_width(nn.Sequential(*layers))
    x = normal(9, 2, 3, 5, seed=1)
    x[1], x[2], x[3] = x[0], -x[0], x[0] + 1e-6 * x[4]
    exact = limit.ntk(x, x.clone(), engine="reference")
    torch.testing.assert_close(limit.ntk(x, x.clone(), engine="native"), exact, rtol=1e-11, atol=0)
