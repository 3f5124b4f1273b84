from __future__ import annotations

import math

import pytest
import torch
from scipy.integrate import quad
from scipy.special import eval_chebyt, eval_gegenbauer
from tests.cases import normal
from torch import nn

import ntkit
from ntkit.diagnostics import mercer
from ntkit.errors import InputError, InputTypeError, QuadratureWarning


def network(dim, bias=True, activation=nn.ReLU, hidden=1):
    layers, inputs = [], dim
    for _ in range(hidden):
        layers += [nn.Linear(inputs, 8, bias=bias), activation()]
        inputs = 8
    return nn.Sequential(*layers, nn.Linear(8, 1, bias=bias))


def on_circle(dim, t):
    x = torch.zeros(len(t), dim, dtype=torch.float64)
    x[:, 0], x[:, 1] = t.cos(), t.sin()
    return x


class Angular(ntkit.Kernel):
    """A kernel with a given function of the cosine."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x1, x2=None):
        return self.function((x1 @ (x1 if x2 is None else x2).T).clamp(-1, 1))

    def diag(self, x):
        return self.function((x * x).sum(1).clamp(-1, 1))


def harmonic(dim, k, x):
    if dim == 2:
        return eval_chebyt(k, x)
    return eval_gegenbauer(k, (dim - 2) / 2, x) / eval_gegenbauer(k, (dim - 2) / 2, 1.0)


@pytest.mark.parametrize("dim", [2, 3, 4, 7])
def test_eigenvalues_are_the_integrals_of_funk_and_hecke(dim):
    ntk = ntkit.infinite_width(network(dim, hidden=2), b_std=0.5).ntk
    found = mercer(ntk, dim, [0, 1, 2, 5, 9])
    area = quad(lambda t: math.sin(t) ** (dim - 2), 0, math.pi)[0]

    def kappa(t):
        return float(ntk(on_circle(dim, torch.zeros(1)), on_circle(dim, torch.tensor([t], dtype=torch.float64))))

    for k, value in zip(found.degrees.tolist(), found.eigenvalues.tolist(), strict=True):
        dense, _ = quad(lambda t, k=k: kappa(t) * harmonic(dim, k, math.cos(t)) * math.sin(t) ** (dim - 2), 0, math.pi)
        assert value == pytest.approx(dense / area, abs=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 5])
def test_a_power_of_the_cosine_has_its_known_spectrum(dim):
    # x^2 = 1/p + (1 - 1/p) P_2(x): eigenvalues 1/p and (1 - 1/p) / N(p, 2).
    found = mercer(Angular(lambda c: c * c), dim, 6)
    assert found.eigenvalues[0] == pytest.approx(1 / dim, abs=1e-14)
    assert found.eigenvalues[2] == pytest.approx((1 - 1 / dim) / float(found.multiplicities[2]), abs=1e-14)
    assert found.vanishing.tolist() == [False, True, False, True, True, True, True]
    assert abs(found.missing) < 1e-13


@pytest.mark.parametrize(
    ("dim", "counts"), [(2, [1, 2, 2, 2]), (3, [1, 3, 5, 7]), (4, [1, 4, 9, 16]), (5, [1, 5, 14, 30])]
)
def test_multiplicities(dim, counts):
    assert mercer(Angular(torch.exp), dim, 3).multiplicities.tolist() == counts


@pytest.mark.parametrize("dim", [2, 3, 4])
@pytest.mark.parametrize("hidden", [1, 3])
def test_relu_networks_with_bias_decay_with_the_dimension(dim, hidden):
    found = mercer(ntkit.infinite_width(network(dim, hidden=hidden), b_std=0.5).ntk, dim, 120)
    assert found.decay_exponent(30, 120) == pytest.approx(dim, abs=0.1)
    assert not found.vanishing.any()


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_odd_degrees_above_one_vanish_without_bias(dim):
    found = mercer(ntkit.infinite_width(network(dim, bias=False)).ntk, dim, 120)
    assert found.vanishing[3::2].all() and not found.vanishing[:3].any() and not found.vanishing[4::2].any()
    assert found.decay_exponent(30, 120) == pytest.approx(dim, abs=0.1)


@pytest.mark.parametrize("dim", [2, 3, 4])
@pytest.mark.parametrize(("activation", "smooth"), [(nn.GELU, False), (nn.ReLU, True)])
def test_sums_rebuild_the_kernel(dim, activation, smooth):
    ntk = ntkit.infinite_width(network(dim, activation=activation), b_std=0.5).ntk
    found = mercer(ntk, dim, 1500 if smooth else 200)
    t = torch.linspace(0.06 if smooth else 0.0, math.pi, 50, dtype=torch.float64)
    exact = ntk(on_circle(dim, torch.zeros(1)), on_circle(dim, t))[0]
    assert (found.rebuild(t, smooth=smooth) - exact).abs().max() < 1e-8
    # Without the filter the error of ReLU, whose eigenvalues fall slowly, is at most the trace that is missing.
    assert (found.rebuild(t) - exact).abs().max() <= abs(found.missing) + 1e-9


@pytest.mark.parametrize("dim", [2, 3])
def test_gram_matrices_of_m_points_have_m_times_the_eigenvalues(dim):
    ntk = ntkit.infinite_width(network(dim, activation=nn.GELU), b_std=0.5).ntk
    found = mercer(ntk, dim, 4)
    x = normal(1500, dim)
    values = torch.linalg.eigvalsh(ntk(x / x.norm(dim=1, keepdim=True))).flip(0) / len(x)
    expected = torch.repeat_interleave(found.eigenvalues, found.multiplicities.long()).sort(descending=True).values
    assert torch.allclose(values[:4], expected[:4], rtol=0.1)


def test_the_radius_counts_where_there_are_biases():
    ntk = ntkit.infinite_width(network(3), b_std=1.0).ntk
    near, far = mercer(ntk, 3, 2, radius=0.1), mercer(ntk, 3, 2, radius=10.0)
    assert near.eigenvalues[0] / near.trace > 0.9 > far.eigenvalues[0] / far.trace


def test_a_rough_kernel_is_warned_of_with_its_error():
    with pytest.warns(QuadratureWarning, match="not smooth in the angle"):
        found = mercer(Angular(lambda c: (c > 0.3).double()), 3, 4)
    exact = (1 - 0.3) / 2  # the share of the sphere above a height
    assert abs(float(found.eigenvalues[0]) - exact) <= 4 * float(found.error[0])


class Linear(ntkit.Kernel):
    def __call__(self, x1, x2=None):
        return x1[:, :1] @ (x1 if x2 is None else x2)[:, :1].T

    def diag(self, x):
        return x[:, 0] ** 2


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Linear(), "must be zonal"),
        (ntkit.empirical(network(3).double()).ntk, "must be zonal"),
        (Angular(lambda c: 0 * c), "zero on the sphere"),
        (Angular(lambda c: c / 0), "NaN or infinite"),
    ],
)
def test_kernels_without_a_spectrum_by_degree(kernel, message):
    with pytest.raises(InputError, match=message):
        mercer(kernel, 3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((Angular(torch.exp), 1, 4), InputError, "dim must be at least 2"),
        ((Angular(torch.exp), 2.5, 4), InputTypeError, "dim must be an integer"),
        ((Angular(torch.exp), 3, []), InputError, "degrees must be whole numbers"),
        ((Angular(torch.exp), 3, [-1]), InputError, "degrees must be whole numbers"),
        ((Angular(torch.exp), 3, "4"), InputTypeError, "degrees must be an integer"),
        ((Angular(torch.exp), 3, 4, 0.0), InputError, "radius must be finite and positive"),
        ((Angular(torch.exp), 3, 4, "1"), InputTypeError, "radius must be a number"),
        ((Angular(torch.exp), 784, 2000), InputError, "more than 1e300 harmonics"),
        ((torch.eye(3), 3, 4), InputTypeError, "kernel must be an ntkit.Kernel"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        mercer(*arguments)


def test_a_decay_needs_degrees_and_rebuilding_angles():
    found = mercer(Angular(torch.exp), 3, 40)
    with pytest.raises(InputError, match="at least three degrees"):
        found.decay_exponent(25, 40)
    with pytest.raises(InputError, match="between 0 and pi"):
        found.rebuild([4.0])
