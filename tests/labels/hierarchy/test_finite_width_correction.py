"""The first-order finite-width correction against a dense integration of its equations, and against trained networks."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from tests.cases import mlp, normal
from torch import nn

import ntkit
from ntkit._src.labels.hierarchy._finite_width_correction import KernelMotion, _breaks
from ntkit._src.solvers import decompose
from ntkit.errors import InputError, InputTypeError, SingularKernelError
from ntkit.labels import ModuleHierarchy


class DenseSource:
    """A hierarchy made up of dense tensors; the inputs, shape (n, 1), are the numbers of its points."""

    def __init__(self, n: int, total: int, eigenvalues: list[float], dtype=torch.float64):
        features = normal(total, n, seed=1)
        features[:n] = torch.linalg.qr(normal(n, n, seed=2))[0] * torch.tensor(eigenvalues, dtype=torch.float64).sqrt()
        self.k2 = (features @ features.T).to(dtype)  # the training points' block has the eigenvalues asked for
        third, fourth = 0.1 * normal(total, total, n, seed=3), 0.1 * normal(total, total, n, n, seed=4)
        self.k3, self.k4 = (k + k.transpose(0, 1) for k in (third.to(dtype), fourth.to(dtype)))
        self.x = torch.arange(total, dtype=dtype)[:, None]
        self.calls = 0

    def _pick(self, tensor, x1, x2):
        rows, columns = x1[:, 0].long(), (x1 if x2 is None else x2)[:, 0].long()
        return tensor[rows][:, columns]

    def second(self, x1, x2=None):
        return self._pick(self.k2, x1, x2)

    def second_diag(self, x):
        return self.second(x).diagonal()

    def third(self, x1, x2, u):
        return self._pick(self.k3, x1, x2) @ u

    def third_diag(self, x, u):
        return self.third(x, None, u).diagonal()

    def fourth(self, x1, x2, u, v):
        self.calls += 1
        return torch.einsum("abij,qi,qj->ab", self._pick(self.k4, x1, x2), u, v)

    def fourth_diag(self, x, u, v):
        return self.fourth(x, None, u, v).diagonal()


def integrated(k2, k3, k4, y, f0, times):
    """Integrate eqs (39)-(44) with all tensors dense; rows are all points, training points first."""
    k2, k3, k4, y, f0 = (tensor.numpy() for tensor in (k2, k3, k4, y, f0))
    total, n = k2.shape

    def rates(_, state):
        f, a, correction, moved = np.split(state, [total, total + n, 2 * total + n])
        r = f[:n] - y
        kernel = moved.reshape(total, n) - k3 @ a
        return np.concatenate(
            [-k2 @ r, r, -kernel @ r - k2 @ correction[:n], (r @ (k4 @ a)[..., None])[..., 0].ravel()]
        )

    start = np.concatenate([f0, np.zeros(n + total + total * n)])
    run = solve_ivp(rates, (0, max(times)), start, "DOP853", times, rtol=1e-12, atol=1e-14)
    return [(torch.tensor(row[:total]), torch.tensor(row[total + n : 2 * total + n])) for row in run.y.T]


def network(width: int, seed: int = 0) -> nn.Module:
    net = mlp(3, width, 1, activation=nn.Tanh).double()
    return ntkit.initialize(ntkit.parametrize_ntk(net, w_std=1.3), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("eigenvalues", [[1.0, 2.0, 3.0, 8.0], [0.0, 0.5, 2.0, 30.0], [0.02, 0.3, 1.0, 40.0]])
def test_equations(eigenvalues):
    n, y = 4, normal(4)
    source = DenseSource(n, 6, eigenvalues)
    x, x_test = source.x[:n], source.x[n:]
    times = [0.0, 0.05, 0.7, 4.0]
    found = ntkit.finite_width_correction(source, x, y, x_test, times)
    on_train = ntkit.finite_width_correction(source, x, y, t=times)
    assert found.correction.shape == (4, 2) and on_train.prediction.shape == (4, 4)
    zero = torch.zeros(6, dtype=torch.float64)
    expected = integrated(source.k2[:, :n], source.k3[:, :n], source.k4[:, :n], y, zero, times)
    for row, (leading, correction) in enumerate(expected):
        scale = max(1e-3, float(correction.abs().max()))
        torch.testing.assert_close(found.leading[row], leading[n:], rtol=0, atol=1e-8)
        torch.testing.assert_close(found.correction[row], correction[n:], rtol=0, atol=1e-8 * scale)
        torch.testing.assert_close(on_train.correction[row], correction[:n], rtol=0, atol=1e-8 * scale)
    one = ntkit.finite_width_correction(source, x, y, x_test, 0.7)
    assert one.correction.shape == (2,)
    torch.testing.assert_close(one.correction, found.correction[2], rtol=1e-9, atol=1e-12)


def test_the_end_of_training():
    source, y = DenseSource(4, 6, [0.02, 0.3, 1.0, 40.0]), normal(4)
    x, x_test = source.x[:4], source.x[4:]
    end = ntkit.finite_width_correction(source, x, y, x_test)
    late = ntkit.finite_width_correction(source, x, y, x_test, 3000.0)
    torch.testing.assert_close(end.correction, late.correction, rtol=1e-9, atol=1e-11)
    finer = ntkit.finite_width_correction(source, x, y, x_test, nodes=16)
    torch.testing.assert_close(
        end.correction, finer.correction, rtol=0, atol=1e-9 * float(finer.correction.abs().max())
    )
    assert torch.equal(ntkit.finite_width_correction(source, x, y).correction, torch.zeros(4, dtype=torch.float64))
    single = DenseSource(4, 6, [0.02, 0.3, 1.0, 40.0], torch.float32)
    found = ntkit.finite_width_correction(single, x.float(), y.float(), x_test.float())
    assert found.prediction.dtype == torch.float32
    torch.testing.assert_close(
        found.correction.double(), end.correction, rtol=0, atol=1e-3 * float(end.correction.abs().max())
    )


def test_calls_do_not_grow_with_the_number_of_points():
    """One contraction of K4 for each time, whatever n: no tensor of order 3 or 4 in slices."""
    counts = []
    for n in (3, 30):
        source = DenseSource(n, n, [1.0] * (n - 1) + [8.0])
        ntkit.finite_width_correction(source, source.x, normal(n), t=1.0, nodes=4)
        counts.append(source.calls)
    assert counts[0] == counts[1] == 4 * 5


def test_a_network():
    """With the network's own start, against the dense equations and its true training."""
    net, x, x_test, y = network(24), normal(3, 3), normal(2, 3, seed=1), normal(3, seed=2)
    found = ntkit.finite_width_correction(net, x, y, x_test, 0.5, nodes=6)
    source, points, unit = ModuleHierarchy(net, x), torch.cat([x, x_test]), torch.eye(3, dtype=torch.float64)
    k3 = torch.stack([source.third(points, x, e) for e in unit], -1)
    k4 = torch.stack([torch.stack([source.fourth(points, x, a[None], b[None]) for b in unit], -1) for a in unit], -2)
    start = net(points)[:, 0].detach()
    leading, correction = integrated(source.second(points, x), k3, k4, y, start, [0.5])[0]
    torch.testing.assert_close(found.leading, leading[3:], rtol=0, atol=1e-9)
    torch.testing.assert_close(found.correction, correction[3:], rtol=0, atol=1e-8 * float(correction.abs().max()))
    run = ntkit.train(
        copy.deepcopy(net),
        x,
        y[:, None],
        ntkit.Schedule("flow", time=0.5, rtol=1e-9),
        record=ntkit.Record(x_test=x_test),
    )
    true = run.test_predictions[-1][:, 0]
    assert (found.prediction - true).norm() < 0.2 * (found.leading - true).norm()


def test_centred():
    net, x, y = network(8), normal(2, 3), normal(2, seed=2)
    centred = ntkit.finite_width_correction(net, x, y, t=0.2, nodes=4, centre=True)
    source = ntkit.finite_width_correction(ModuleHierarchy(net, x), x, y, t=0.2, nodes=4)
    torch.testing.assert_close(centred.prediction, source.prediction, rtol=1e-12, atol=1e-13)
    plain = ntkit.finite_width_correction(net, x, y - net(x)[:, 0].detach(), t=0.2, nodes=4, centre=True)
    shifted = ntkit.finite_width_correction(net, x, y, t=0.2, nodes=4)
    torch.testing.assert_close(plain.correction, shifted.correction, rtol=1e-10, atol=1e-12)


def test_mean_over_networks():
    net, x, y = network(8), normal(2, 3), normal(2, seed=2)
    done: list[tuple[int, int]] = []

    def mean():
        return ntkit.finite_width_correction(
            net, x, y, t=0.1, nodes=3, n_samples=2, generator=torch.Generator().manual_seed(5),
            progress=lambda *numbers: done.append(numbers),
        )  # fmt: skip

    found = mean()
    assert torch.equal(found.prediction, mean().prediction)
    total = done[0][1]
    assert done[: total + 1] == [*((k, total) for k in range(1, total + 1)), (1, total)]
    drawn = ntkit.monte_carlo(net, 2, generator=torch.Generator().manual_seed(5)).networks(x)
    each = [ntkit.finite_width_correction(one.module, x, y, t=0.1, nodes=3) for one in drawn]
    torch.testing.assert_close(found.prediction, (each[0].prediction + each[1].prediction) / 2, rtol=1e-12, atol=1e-13)


NET, X, Y = network(4), normal(3, 3), normal(3, seed=1)
SOURCE = DenseSource(3, 3, [1.0, 2.0, 3.0])
ERRORS = {
    "targets": (
        lambda: ntkit.finite_width_correction(NET, X, Y[:, None]),
        InputError,
        r"y must be a tensor of shape \(3,\)",
    ),
    "NaN": (lambda: ntkit.finite_width_correction(NET, X, Y * math.nan, t=1.0), InputError, "finite|NaN"),
    "time": (lambda: ntkit.finite_width_correction(NET, X, Y, t=-1.0), InputError, "must not be negative"),
    "nodes": (lambda: ntkit.finite_width_correction(NET, X, Y, nodes=1), InputError, "nodes must be"),
    "source": (lambda: ntkit.finite_width_correction("net", X, Y), InputTypeError, "ModuleHierarchy"),
    "samples": (
        lambda: ntkit.finite_width_correction(SOURCE, SOURCE.x, Y, n_samples=2),
        InputError,
        "are for a module",
    ),
    "singular": (
        lambda: ntkit.finite_width_correction(NET, X[[0, 1, 1]], Y),
        SingularKernelError,
        "Pass a finite t",
    ),
    "test points": (lambda: ntkit.finite_width_correction(NET, X, Y, X[:, :2], 1.0), InputError, "rows|shape|features"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()


def test_panels_double_and_end_at_the_times():
    assert _breaks([3.0, 0.0], 0.5) == [0.5, 1.0, 2.0, 3.0]
    assert _breaks([0.0], 0.5) == []
    assert _breaks([0.5, 1.0], 0.5) == [0.5, 1.0]


@pytest.mark.parametrize("h", [1e-3, 0.3, 5.0, 400.0])
def test_weights_integrate_polynomials_against_the_decay(h):
    """int_0^h e^(-d (h - s)) s^p ds and its own integral over the end, for d from 0.01 to 50, against fine quadrature."""
    values = torch.tensor([0.01, 1.0, 50.0], dtype=torch.float64)
    x = torch.zeros(3, 1, dtype=torch.float64)
    motion = KernelMotion(None, x, None, decompose(values.diag()), torch.ones(3, dtype=torch.float64), 6)
    once, twice = motion._kernels(h)
    s = (1 + motion.nodes) * (h / 2)
    fine = 400_001
    t = torch.linspace(0, 1, fine, dtype=torch.float64) ** 2 * h  # dense where the decay is quick
    for p in (0, 2, 5):
        for row, d in enumerate(motion.values.tolist()):
            back = t  # h - s
            integrand = torch.exp(-d * back) * ((h - back) / h) ** p
            own = -torch.expm1(-d * back) / d * ((h - back) / h) ** p
            for weights, values_at in ((once, integrand), (twice, own)):
                expected = float(torch.trapezoid(values_at, t))
                assert float(weights[row] @ (s / h) ** p) == pytest.approx(expected, rel=1e-6), (p, d)
