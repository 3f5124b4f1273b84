"""TangentHierarchy against the dense formulas of the paper and the integrated hierarchy of differential equations."""

from __future__ import annotations

import copy
import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from tests.cases import mlp, normal
from torch import Tensor, nn

import ntkit
from ntkit import Kernel
from ntkit._src.labels.hierarchy._two_layer_hierarchy import Accuracy
from ntkit.errors import AccuracyWarning, InputError, InputTypeError, SingularKernelError
from ntkit.testing import KernelConformance

N, D = 4, 5


def labels(n: int = N) -> Tensor:
    return torch.where(normal(n, seed=9) > 0, 1.0, -1.0).double()


def fitted(which: str, time: float = math.inf, ridge: float = 0.0) -> ntkit.TangentHierarchy:
    generator = torch.Generator().manual_seed(1)
    if which == "module":
        net = mlp(D, 12, 1, activation=nn.Tanh).double()
        for parameter in net.parameters():
            nn.init.normal_(parameter, generator=generator)
        nth = ntkit.TangentHierarchy(module=net, n_samples=0, time=time, ridge=ridge, linear_term=True)
    else:
        nth = ntkit.TangentHierarchy(which, width=16, n_samples=64, generator=generator, time=time, ridge=ridge)
    return nth.fit(normal(N, D), labels())


X1, X2 = torch.cat([normal(2, D, seed=3), normal(N, D)[:1]]), torch.cat([normal(1, D, seed=4), normal(N, D)[:2]])
"""New inputs, and training points among them."""


@cache
def entries(which: str) -> tuple[Tensor, Tensor, Tensor]:
    """K2, K3 and K4 of X1 and X2, shapes (n1, n2), (n1, n2, n) and (n1, n2, n, n)."""
    x1, x2, unit, source = X1, X2, torch.eye(N, dtype=torch.float64), fitted(which).source_
    k3 = torch.stack([source.third(x1, x2, unit[i]) for i in range(N)], -1)
    rows = [[source.fourth(x1, x2, unit[i, None], unit[j, None]) for j in range(N)] for i in range(N)]
    return source.second(x1, x2), k3, torch.stack([torch.stack(row, -1) for row in rows], -2)


def proposition(which: str, h: Tensor, t: float) -> Tensor:
    """Proposition A.2, and eq. (5) at t = infinity, as printed, but for their time, which is n times as long."""
    (k2, k3, k4), y = entries(which), labels()
    d, p = torch.linalg.eigh(h)
    inverse, decay = torch.linalg.inv(h), torch.linalg.matrix_exp(-t * h) if t < math.inf else torch.zeros_like(h)
    settled = inverse @ (torch.eye(N, dtype=h.dtype) - decay)
    pairs = d[:, None] + d
    q = (1 - torch.exp(-t * pairs)) * (p.T @ k4 @ p / d) / pairs
    second = torch.einsum("i,abij,j->ab", settled @ y, k4, inverse @ y)
    return k2 + k3 @ (settled @ y) + second - torch.einsum("i,abij,j->ab", p.T @ y, q, p.T @ y)


@pytest.mark.parametrize("which", ["tanh", "relu", "module"])
@pytest.mark.parametrize("t", [0.09, pytest.param(2.5, marks=pytest.mark.slow), math.inf])
def test_equals_the_dense_formula(which: str, t: float) -> None:
    """K_NTH equals eq. (5), and K_t Proposition A.2, of all n^4 entries, training points among the inputs."""
    nth = fitted(which, t)
    expected = proposition(which, nth.source_.second(normal(N, D)), t)
    torch.testing.assert_close(nth(X1, X2), expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
    torch.testing.assert_close(nth.label_part(X1, X2), nth(X1, X2) - nth.label_free(X1, X2))
    assert nth.label_part(X1, X2).abs().max() > 1e-4 * expected.abs().max()


@pytest.mark.parametrize("which", ["tanh", "module"])
def test_equals_the_integrated_equations(which: str) -> None:
    """K_t equals the solution of eq. (3) up to K4 by a Runge-Kutta method: the first index of K4 is the later time's."""
    nth, (k2, k3, k4) = fitted(which), (k.numpy() for k in entries(which))
    h, y = nth.source_.second(normal(N, D)).numpy(), labels().numpy()
    sizes = np.cumsum([N, k2.size])

    def flow(t: float, state: np.ndarray) -> np.ndarray:
        outputs, third = state[: sizes[0]], state[sizes[1] :].reshape(k3.shape)
        residual = outputs - y
        return np.concatenate([-h @ residual, -(third @ residual).ravel(), -(k4 @ residual).ravel()])

    start = np.concatenate([np.zeros(N), k2.ravel(), k3.ravel()])
    t = 3.0 / float(np.linalg.eigvalsh(h)[N // 2])
    end = solve_ivp(flow, (0, t), start, rtol=1e-10, atol=1e-12, method="DOP853").y[:, -1]
    expected = torch.from_numpy(end[sizes[0] : sizes[1]].reshape(k2.shape))
    torch.testing.assert_close(nth.at(t)(X1, X2), expected, rtol=1e-7, atol=1e-9)
    u, v = nth.at(t)._second
    assert not torch.allclose(nth.source_.fourth(X1, X2, v, u), nth.source_.fourth(X1, X2, u, v), rtol=1e-3)


def test_time_is_that_of_training() -> None:
    """A network trained by ``ntkit.train`` for a time t has the kernel of ``at(t)``, but for terms of order 1 / width^2."""
    x, y, generator = normal(4, D), labels(4), torch.Generator().manual_seed(3)
    net = mlp(D, 128, 1, activation=nn.Tanh, bias=False).double()
    net = ntkit.initialize(ntkit.parametrize_ntk(net, w_std=1.2), generator=generator)
    nth = ntkit.TangentHierarchy(module=net, n_samples=0, linear_term=True).fit(x, y)
    for t in (0.3, 1.0):
        trained = copy.deepcopy(net)
        ntkit.train(trained, x, y[:, None], ntkit.Schedule("flow", time=t, rtol=1e-9, atol=1e-12), centre=True)
        true = ntkit.empirical(trained).ntk(x)
        moved = (true - nth.label_free(x)).norm()
        assert (true - nth.at(t)(x)).norm() < 0.1 * moved, t
        assert (true - nth.at(t / 4)(x)).norm() > 0.3 * moved  # in the paper's unit, the mean loss, it would be t / n


def test_long_times_reach_the_limit() -> None:
    """t to infinity of Proposition A.2 is eq. (5), and t = 0 the label-free kernel."""
    nth, x = fitted("tanh"), normal(3, D, seed=3)
    torch.testing.assert_close(nth.at(1e8)(x), nth(x), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(nth.at(0)(x), nth.label_free(x), rtol=1e-13, atol=0)
    assert nth.at(5.0).time == 5.0
    assert nth.time == math.inf


def test_ridge_is_relative_to_the_mean_diagonal() -> None:
    x, y = normal(N, D), labels()
    nth = fitted("erf", ridge=0.1)
    h = nth.source_.second(x)
    expected = torch.linalg.solve(h + 0.1 * h.diagonal().mean() * torch.eye(N, dtype=h.dtype), y)
    torch.testing.assert_close(nth._first, expected)


class TestConformance(KernelConformance):
    """The smooth two-layer kernel, the ReLU's and a module's are kernels like any other."""

    def kernels(self) -> list[Kernel]:
        x, y = normal(6, D, seed=7), labels(6)
        generator = torch.Generator().manual_seed(1)
        return [
            ntkit.TangentHierarchy(name, width=4096, n_samples=64, ridge=0.01, generator=generator).fit(x, y)
            for name in ("tanh", "relu")
        ]

    def inputs(self) -> Tensor:
        return normal(5, D, seed=8)


def test_module() -> None:
    """Random networks of any architecture; the same networks serve every call."""
    net = mlp(D, 32, 32, 1, activation=nn.Tanh).double()
    nth = ntkit.TangentHierarchy(module=net, n_samples=2, generator=torch.Generator().manual_seed(0))
    x = normal(4, D, seed=3)
    nth.fit(normal(N, D), labels())
    torch.testing.assert_close(nth(x), nth(x, x))
    torch.testing.assert_close(nth.diag(x), nth(x).diagonal())
    with pytest.raises(InputTypeError, match="two-layer"):
        nth.standard_error(x)
    with pytest.raises(InputTypeError, match="two-layer"):
        _ = nth.accuracy_


def test_wider_means_less_label_part() -> None:
    """The label part is in proportion to 1 / width."""
    x, parts = normal(3, D, seed=3), []
    for width in (64, 256):
        nth = ntkit.TangentHierarchy("relu", width=width, n_samples=64, generator=torch.Generator().manual_seed(0))
        parts.append(nth.fit(normal(N, D), labels()).label_part(x))
    torch.testing.assert_close(parts[0], 4 * parts[1])


def nearly_repeated() -> tuple[Tensor, Tensor]:
    """Six points, the last close to the first and of the other class: E K2 of erf has condition number 4,000."""
    x = normal(6, D)
    x[5] = x[0] + 0.017645 * (x[5] - x[0])
    return x, torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0, -1.0], dtype=torch.float64)


def test_neurons_are_drawn_until_the_accuracy_is_reached() -> None:
    """Where 2,048 neurons are off by a fifth of the largest entry, as many are drawn as the accuracy takes."""
    x, y = nearly_repeated()
    generator = torch.Generator().manual_seed(0)
    few = ntkit.TangentHierarchy("erf", n_samples=2048, generator=generator).fit(x, y)
    condition = torch.linalg.cond(few.label_free(x))
    assert 3500 < condition < 4500, condition
    assert few.accuracy_.error > 0.1
    assert few.accuracy_ == Accuracy(few.accuracy_.error, 2048)
    nth = ntkit.TangentHierarchy("erf", rtol=0.06, generator=generator).fit(x, y)
    assert nth.accuracy_.reached
    assert nth.accuracy_.n_samples == nth.source_.n_samples > 2048
    assert nth.accuracy_.error == nth.standard_error(x).max() / nth.label_part(x).abs().max() <= 0.06
    # The standard errors are those of the differences between independent draws.
    difference = nth.label_part(x) - few.label_part(x)
    spread = (nth.standard_error(x).square() + few.standard_error(x).square()).sqrt()
    assert 0.4 < (difference / spread).square().mean().sqrt() < 2.5


def test_accuracy_out_of_reach() -> None:
    x, y = nearly_repeated()
    generator = torch.Generator().manual_seed(0)
    nth = ntkit.TangentHierarchy("erf", rtol=1e-4, max_samples=4096, generator=generator)
    with pytest.warns(AccuracyWarning, match=r"from 4096 neurons, where 1.0e-04 was asked for\. Raise max_samples"):
        nth.fit(x, y)
    assert not nth.accuracy_.reached
    assert nth.accuracy_.rtol == 1e-4
    later = nth.at(0.01)
    assert later.accuracy_.rtol is None  # measured, not asked for
    assert later.accuracy_.error < nth.accuracy_.error
    assert ntkit.TangentHierarchy("erf", time=0.0).fit(x, y).accuracy_.error == 0


def test_standard_error_and_repr() -> None:
    nth, x = fitted("relu"), normal(3, D, seed=3)
    assert nth.standard_error(x).shape == (3, 3)
    assert (nth.standard_error(x) > 0).all()
    assert "relu" in repr(nth)
    assert 1 <= nth.rank_ <= N


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, InputTypeError, "either"),
        ({"activation": "relu", "module": nn.Linear(2, 1)}, InputTypeError, "either"),
        ({"module": "relu"}, InputTypeError, "torch.nn.Module"),
        ({"activation": "swoosh"}, InputError, "'relu'"),
        ({"activation": "relu", "width": 0}, InputError, "width"),
        ({"activation": "relu", "n_samples": 3}, InputError, "n_samples"),
        ({"activation": "relu", "max_samples": 63}, InputError, "max_samples"),
        ({"activation": "relu", "rtol": 0.0}, InputError, "rtol"),
        ({"activation": "relu", "rtol": math.inf}, InputError, "rtol"),
        ({"activation": "relu", "rtol": True}, InputTypeError, "rtol"),
        ({"activation": "relu", "time": -1.0}, InputError, "time"),
        ({"activation": "relu", "time": math.nan}, InputError, "time"),
        ({"activation": "relu", "ridge": -1.0}, InputError, "ridge"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ntkit.TangentHierarchy(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        (normal(3, 2), normal(3, 2), InputError, "For several classes"),
        (normal(3, 2), normal(4), InputError, "each of the 3"),
        (normal(3, 2), torch.tensor([True, False, True]), InputTypeError, "booleans"),
        (normal(3, 2), torch.tensor([1.0, math.nan, 0.0]), InputError, "finite"),
        (normal(3, 2), [1.0, 2.0, 3.0], InputTypeError, "Tensor"),
        (torch.full((3, 2), math.nan), normal(3), InputError, "finite"),
        (normal(3, 2)[[0, 1, 1]], normal(3), SingularKernelError, "ridge"),
    ],
)
def test_bad_data(x: Tensor, y: Tensor, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ntkit.TangentHierarchy("erf", n_samples=64).fit(x, y)


def test_repeated_inputs_need_a_ridge() -> None:
    x = normal(4, 3)[[0, 1, 2, 3, 3]]
    nth = ntkit.TangentHierarchy("relu", n_samples=64, ridge=1e-3).fit(x, labels(5))
    assert torch.isfinite(nth(x)).all()


def test_unfitted_and_mismatched() -> None:
    nth = ntkit.TangentHierarchy("relu", n_samples=64)
    with pytest.raises(InputError, match="fit"):
        nth(normal(2, 2))
    with pytest.raises(InputError, match="fit"):
        nth.at(1.0)
    nth.fit(normal(3, 2), normal(3))
    with pytest.raises(InputError, match="same shape"):
        nth(normal(2, 5))
