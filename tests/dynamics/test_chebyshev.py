from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev
from scipy.integrate import solve_ivp

from ntkit import GradientFlow
from ntkit._src.dynamics._chebyshev import Chebyshev, _chebyshev
from ntkit.errors import InputError


def decay(rates, t, rtol, **options):
    """Solve y' = -rates y + 1 from y = 2, whose solution is known."""
    rates = np.asarray(rates)
    found = solve_ivp(
        lambda _, y: 1 - rates * y,
        (0.0, t),
        np.full(len(rates), 2.0),
        method=Chebyshev,
        radius=lambda y: rates.max(),
        rtol=rtol,
        atol=rtol / 10,
        **options,
    )
    exact = 1 / rates[:, None] + (2 - 1 / rates[:, None]) * np.exp(-rates[:, None] * found.t)
    return found, np.abs(found.y - exact).max()


@pytest.mark.parametrize("rtol", [1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("rates", [(1.0,), (0.5, 3.0), (0.1, 1.0, 1e3)])
def test_error_follows_the_tolerance(rates, rtol):
    """The error of a step of second order is the tolerance at h ~ rtol^(1/3), and t / h of them add up to rtol^(2/3)."""
    found, error = decay(rates, 3.0, rtol)
    assert found.success and error < rtol ** (2 / 3)
    _, coarse = decay(rates, 3.0, 100 * rtol)
    assert error < coarse / 4


@pytest.mark.parametrize("stiff", [1e3, 1e5])
def test_evaluations_grow_as_the_root_of_the_stiffness(stiff):
    few, many = (decay((1.0, rate), 2.0, 1e-4)[0].nfev for rate in (stiff, 100 * stiff))
    assert 5 < many / few < 15  # an ordinary explicit method takes 100 times as many


def test_values_between_steps():
    times = np.linspace(0.1, 2.9, 37)
    found, error = decay((0.3, 2.0, 200.0), 3.0, 1e-7, t_eval=times)
    assert found.t.tolist() == times.tolist() and error < 1e-5


def test_a_radius_that_is_too_small_costs_steps_and_no_accuracy():
    rates = np.array([1.0, 5e3])
    said = iter([10.0])
    found = solve_ivp(
        lambda _, y: -rates * y, (0.0, 1.0), np.ones(2), method=Chebyshev, radius=lambda y: next(said, 5e3),
        rtol=1e-5, atol=1e-7,
    )  # fmt: skip
    assert abs(found.y[0, -1] - np.exp(-1)) < 1e-4 and abs(found.y[1, -1]) < 1e-4


def test_chebyshev_polynomials():
    values = _chebyshev(1.01, 9)
    for order, found in enumerate(values):
        basis = [chebyshev.Chebyshev.basis(j) for j in range(10)]
        expected = [one.deriv(order)(1.01) if order else one(1.01) for one in basis]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


K = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None]
K = torch.exp(-3 * (K - K.T) ** 2) + 50
CLASSES = torch.arange(12) % 3
TARGETS = {
    "cross_entropy": torch.nn.functional.one_hot(CLASSES, 3).double(),
    "binary_cross_entropy": (CLASSES > 0).double(),
}


@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize("loss", TARGETS)
def test_flows_as_with_another_method(loss, ridge):
    times = [0.01, 1.0, 7.0]
    exact = GradientFlow("precomputed", loss, ridge, rtol=1e-10, atol=1e-12).fit(K, TARGETS[loss])
    found = GradientFlow("precomputed", loss, ridge, integrator="RKC").fit(K, TARGETS[loss])
    torch.testing.assert_close(found.predict(None, t=times), exact.predict(None, t=times), rtol=2e-4, atol=2e-4)


def test_time_to_a_loss():
    """An event between two steps of a flow without end."""
    times = [
        GradientFlow("precomputed", "cross_entropy", integrator=method, rtol=1e-8)
        .fit(K, TARGETS["cross_entropy"])
        .time_to_loss(12.5)
        for method in ("RK45", "RKC")
    ]
    assert times[1] == pytest.approx(times[0], rel=1e-4)


def test_nothing_that_moves():
    flow = GradientFlow("precomputed", "cross_entropy", integrator="RKC", max_evaluations=500)
    flow.fit(torch.zeros_like(K), TARGETS["cross_entropy"])
    assert not flow.predict(None, t=3.0).any()
    with pytest.raises(InputError, match="500 evaluations"):
        flow.time_to_loss(0.1)


def test_single_precision_is_refused():
    flow = GradientFlow("precomputed", "cross_entropy", integrator="RKC").fit(
        K.float(), TARGETS["cross_entropy"].float()
    )
    with pytest.raises(InputError, match="float64"):
        flow.predict(None, t=1.0)
