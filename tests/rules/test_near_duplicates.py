"""Inputs that nearly coincide: the reference engine carries H = (q + q') / 2 - K, which K has lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mpmath import mp, mpf
from tests.cases import Function, Residual, mlp, normal
from torch import Tensor, nn

import ntkit
from ntkit._src.program import Keep
from ntkit._src.rules import _engine
from ntkit._src.rules._covariance import Covariance, Ends

from .high_precision import duals, kernels

BOUND = 1e-12
APART = (1e-3, 1e-5, 1e-7, 1e-9, 0.0)
SIZES = (1e-3, 0.5, 1.001, 1.7, 1e3)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "erf": lambda: Function(torch.erf),
    "gelu": nn.GELU,
}


def _near(x: Tensor) -> Tensor:
    """One row for each distance from x, and one that differs by a factor."""
    return torch.stack([*(x + d * normal(*x.shape, seed=1) for d in APART), 1.7 * x])


def _mlp(name: str, features: int, depth: int, residual: bool, first_bias: bool = True) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(features, 7, bias=first_bias)]
    for _ in range(depth):
        block = [MODULES[name](), nn.Linear(7, 7)]
        layers += [Residual(*block)] if residual else block
    return nn.Sequential(*layers)


@pytest.mark.parametrize("b_std", [0.0, 0.3])
@pytest.mark.parametrize("features", [3, 12])  # few channels are subtracted one by one, many only where rows are near
@pytest.mark.parametrize(
    ("name", "depth", "residual"),
    [
        *((name, depth, False) for name in ("relu", "leaky") for depth in (1, 2, 3, 4)),
        *((name, depth, False) for name in ("erf", "gelu") for depth in (1, 3)),
        ("relu", 3, True),
        ("leaky", 2, True),
        ("gelu", 2, True),
    ],
)
def test_fully_connected(name: str, depth: int, residual: bool, features: int, b_std: float) -> None:
    x = normal(features, seed=2)
    near = _near(x)
    limit = ntkit.infinite_width(_mlp(name, features, depth, residual), w_std=1.3, b_std=b_std)
    found = limit.both(x[None], near, engine="reference")
    for row, ntk, nngp in zip(near.tolist(), found.ntk[0].tolist(), found.nngp[0].tolist(), strict=True):
        exact = kernels(duals[name], depth, x.tolist(), row, 1.3, b_std, residual)
        assert abs((mpf(ntk) - exact[0]) / exact[0]) < BOUND
        assert abs((mpf(nngp) - exact[1]) / exact[1]) < BOUND


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("features", [3, 12])
@pytest.mark.parametrize(
    ("name", "depth", "residual", "b_std"),
    [
        ("relu", 1, False, 0.0),
        ("leaky", 3, False, 0.0),
        ("relu", 3, True, 0.0),
        ("relu", 2, False, 0.3),
        ("gelu", 2, True, 0.3),
    ],
)
def test_parallel_inputs_of_different_size(
    name: str, depth: int, residual: bool, b_std: float, features: int, size: float
) -> None:
    """c (x + d u): an activation without a bias before it sees the angle, which K has lost and H of x and x' has too."""
    x = normal(features, seed=2)
    near = size * _near(x)
    limit = ntkit.infinite_width(_mlp(name, features, depth, residual, first_bias=False), w_std=1.3, b_std=b_std)
    found = limit.both(x[None], near, engine="reference")
    for row, ntk, nngp in zip(near.tolist(), found.ntk[0].tolist(), found.nngp[0].tolist(), strict=True):
        exact = kernels(duals[name], depth, x.tolist(), row, 1.3, b_std, residual, first_bias=False)
        assert abs((mpf(ntk) - exact[0]) / exact[0]) < BOUND
        assert abs((mpf(nngp) - exact[1]) / exact[1]) < BOUND


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["padded, flatten", "padded, pooled", "many channels", "residual"])
def test_convolutions_of_different_size(name: str, size: float) -> None:
    """Without biases the kernels of x and c x' are c times those of x and x'."""
    shape, layers = CONVOLUTIONS[name]
    x = normal(*shape, seed=2)
    limit = ntkit.infinite_width(nn.Sequential(*layers), w_std=1.3, b_std=0.0)
    plain, scaled = (limit.both(x[None], c * _near(x), engine="reference") for c in (1.0, size))
    for one, other in zip(plain, scaled, strict=True):
        torch.testing.assert_close(other, size * one, rtol=BOUND, atol=0)


def _pre_norm(x1: list[float], x2: list[float], w_std: float, b_std: float) -> tuple[mpf, mpf]:
    """NTK and NNGP of h = W x, h + Linear(relu(norm(h))), relu, Linear in 80 digits."""
    with mp.workdps(80):
        w, b = mpf(w_std) ** 2, mpf(b_std) ** 2
        pairs = ((x1, x1), (x2, x2), (x1, x2))
        q1, q2, k = (w * sum(mpf(u) * mpf(v) for u, v in zip(*pair, strict=True)) / len(x1) for pair in pairs)
        one, scale = mpf(1), (q1 * q2) ** mpf("0.5")
        value, slope = duals["relu"](k / scale, one, one)
        own = w * duals["relu"](one, one, one)[0] + b
        theta = k + w * value + b + w * slope * k / scale
        q1, q2, k = q1 + own, q2 + own, k + w * value + b
        value, slope = duals["relu"](k, q1, q2)
        return w * value + b + w * slope * theta, w * value + b


@pytest.mark.parametrize("size", SIZES)
def test_pre_norm_of_different_size(size: float) -> None:
    """The skip connection adds values that grow with the input to values that do not."""
    x = normal(5, seed=2)
    near = size * _near(x)
    block = Residual(nn.LayerNorm(7, eps=0.0, elementwise_affine=False), nn.ReLU(), nn.Linear(7, 7))
    module = nn.Sequential(nn.Linear(5, 7, bias=False), block, nn.ReLU(), nn.Linear(7, 1))
    found = ntkit.infinite_width(module, w_std=1.3, b_std=0.3).both(x[None], near, engine="reference")
    for row, ntk, nngp in zip(near.tolist(), found.ntk[0].tolist(), found.nngp[0].tolist(), strict=True):
        exact = _pre_norm(x.tolist(), row, 1.3, 0.3)
        assert abs((mpf(ntk) - exact[0]) / exact[0]) < BOUND
        assert abs((mpf(nngp) - exact[1]) / exact[1]) < BOUND


@pytest.mark.parametrize("size", [1.0, 1.7, 30.0])
def test_gradient(size: float) -> None:
    """The derivative in an input, of which the angle's part is as large as the rest, however near the other input is."""
    x, along = normal(5, seed=2), normal(5, seed=3)
    bias = 0.3 if size == 1 else 0.0
    limit = ntkit.infinite_width(_mlp("relu", 5, 2, False), w_std=1.3, b_std=bias)
    for distance in (1e-3, 1e-5, 1e-7):
        other = size * (x + distance * normal(5, seed=1))
        leaf = x.clone().requires_grad_()
        found = float(torch.autograd.grad(limit.ntk(leaf[None], other[None]).sum(), leaf)[0] @ along)
        with mp.workdps(80):
            ends = [
                kernels(duals["relu"], 2, [mpf(a) + t * mpf(b) for a, b in zip(x.tolist(), along.tolist(), strict=True)],
                        other.tolist(), 1.3, bias)[0]
                for t in (mpf("1e-25"), -mpf("1e-25"))
            ]  # fmt: skip
            exact = (ends[0] - ends[1]) / mpf("2e-25")
        assert abs(found - exact) < 1e-15 / distance * abs(exact)  # the difference of the deviations is rounded


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], list[nn.Module]]] = {
    "padded, flatten": (
        (3, 7),
        [nn.Conv1d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(56, 1)],
    ),
    "padded, pooled": (
        (2, 4, 3),
        [nn.Conv2d(2, 8, 3, padding=1), nn.LeakyReLU(0.1), nn.Conv2d(8, 8, 3, padding=(1, 0), bias=False), nn.ReLU(),
         nn.Conv2d(8, 8, (2, 1), padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)],
    ),
    "circular, strided, pooled": (
        (3, 8),
        [nn.Conv1d(3, 8, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Conv1d(8, 8, 3, stride=2), nn.ReLU(),
         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1)],
    ),
    "many channels": (
        (12, 6),
        [nn.Conv1d(12, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1)],
    ),
    "residual": (
        (3, 6),
        [nn.Conv1d(3, 8, 3, padding=1), Residual(nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1)),
         Residual(nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1)), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_against_the_native_engine(name: str) -> None:
    shape, layers = CONVOLUTIONS[name]
    x = normal(*shape, seed=2)
    limit = ntkit.infinite_width(nn.Sequential(*layers), w_std=1.3, b_std=0.3)
    found, exact = (limit.both(x[None], _near(x), engine=engine) for engine in ("reference", "native"))
    for a, b in zip(found, exact, strict=True):
        assert ((a - b).abs() / b).max() < BOUND


class Branches(nn.Module):
    """Rectifiers that are not centred, in a sum and a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Conv1d(2, 6, 3, padding=1) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first(x).relu() + 0.7 * self.second(x).relu(), self.third(x).relu()], 1)


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv1d(2, 6, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = self.first(x) * self.second(x)
        return value


def _last(channels: int) -> list[nn.Module]:
    """A rectifier, which reads H, and a mean over all pairs of positions."""
    return [nn.Conv1d(channels, 6, 2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 1)]


# For each network the operations that leave H out, and those after them; all others carry it to the last activation.
CARRIED: dict[str, tuple[list[nn.Module], set[str]]] = {
    "convolutions": (
        [nn.Conv1d(2, 6, 3, padding=(2,)), nn.LeakyReLU(0.2), nn.Conv1d(6, 6, 3, stride=2, padding=1)],
        set(),
    ),
    "circular": ([nn.Conv1d(2, 6, 3, padding=1, padding_mode="circular"), nn.ReLU()], set()),
    "branches": ([Branches()], set()),
    "norm": (
        [nn.Conv1d(2, 6, 3, padding=1), nn.GroupNorm(1, 6), nn.ReLU(), nn.Conv1d(6, 6, 1), nn.GroupNorm(1, 6)],
        set(),
    ),
    "not centred": ([Branches(), nn.GroupNorm(1, 12)], {"norm"}),
    "moved": ([nn.Conv1d(2, 6, 3), Function(lambda h: h[..., 1:].flip(-1)), nn.ReLU()], set()),
    "pooled": ([nn.Conv1d(2, 6, 3, padding=1), nn.AvgPool1d(2), nn.ReLU()], {"pool"}),
    "smooth": ([nn.Conv1d(2, 6, 3, padding=1), nn.GELU()], {"gelu"}),
    "product": ([Product()], {"input"}),  # nothing reads it before the product, which has none
    "read before the product": ([nn.Conv1d(2, 2, 3, padding=1), nn.ReLU(), Product()], {"relu"}),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_carries_h(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, leaves_out = CARRIED[name]
    seen: list[tuple[str, Covariance]] = []
    apply = _engine._apply

    def record(step: Any, *arguments: Any) -> Covariance:
        result = apply(step, *arguments)
        seen.append((type(step.op).__name__ + " " + step.op.label(), result))
        return result

    channels = nn.Sequential(*layers)(torch.zeros(1, 2, 9)).shape[1]
    module = nn.Sequential(*layers, *_last(channels))
    program = ntkit.infinite_width(module, w_std=1.3, b_std=0.4).program((2, 9))
    own = _engine.moments(program, _engine.read_data(program, normal(3, 2, 9)))
    monkeypatch.setattr(_engine, "_apply", record)
    _engine.covariance(program, own, own, ntk=False)
    last = max(i for i, (label, _) in enumerate(seen) if "relu" in label.lower())
    lost = False
    for label, result in seen[:last]:
        lost = lost or any(word in label.lower() for word in leaves_out)
        assert (result.h is None) == lost, label
        if result.h is not None:
            n = len(result.nngp)
            q = result.restrict((Keep.SAME,) * len(result.keeps)).nngp[range(n), range(n)]
            q1, q2 = Ends(own, own, 2).spread(q, q, result.keeps)
            torch.testing.assert_close(result.h, (q1 + q2) / 2 - result.nngp, rtol=1e-11, atol=1e-13)
    assert lost == bool(leaves_out)
    assert all(result.h is None for _, result in seen[last:])


@pytest.mark.parametrize("factor", [0.9, 1.2, 1.5])
def test_parallel_inputs_of_many_features(factor: float) -> None:
    """A network without biases is homogeneous: the kernels of x and c x are c times those of x with itself."""
    x = normal(8, 3000)
    limit = ntkit.infinite_width(mlp(3000, 8, 1))
    for kernel in (limit.ntk, limit.nngp):
        own = kernel.diag(x, engine="reference")
        found = kernel(x, factor * x, engine="reference").diagonal()
        torch.testing.assert_close(found, factor * own, rtol=1e-14, atol=0)


def test_derivatives_at_parallel_inputs() -> None:
    x, z = normal(2, 12), 1.3 * normal(2, 12)
    limit = ntkit.infinite_width(mlp(12, 8, 1, activation=nn.Tanh))
    direction = normal(4, 12)[2:]

    def value(step: float) -> torch.Tensor:
        return limit.nngp(x, z + step * direction, engine="reference").diagonal().sum()

    moved = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(limit.nngp(x, moved).diagonal().sum(), moved)
    expected = (value(1e-4) - value(-1e-4)) / 2e-4
    torch.testing.assert_close((gradient * direction).sum(), expected, rtol=1e-6, atol=0)
