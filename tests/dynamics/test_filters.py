"""Spectral filters against their recurrences, step by step, and against many digits."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
import torch

from ntkit import Descent
from ntkit._src.dynamics import flow_filter
from ntkit._src.dynamics._squared_error import descent_filter
from ntkit.errors import InputError, InputTypeError

MU = [0.0, 1e-30, 1e-9, 1e-3, 0.3, 0.999, 1.0, 1.001, 2.5, 3.9]


@pytest.mark.parametrize("t", [0.0, 1e-12, 0.5, 3.0, 1e9, math.inf])
def test_flow(t: float) -> None:
    found = flow_filter(torch.tensor(MU, dtype=torch.float64), t).tolist()
    with mpmath.workdps(50):
        for mu, value in zip(MU, found, strict=True):
            if math.isinf(t):
                expected = 1 / mpmath.mpf(mu) if mu else 0
            else:
                expected = -mpmath.expm1(-mpmath.mpf(mu) * t) / mpmath.mpf(mu) if mu else t
            assert abs(value - expected) <= 4e-16 * abs(expected)


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 40])
@pytest.mark.parametrize(
    ("momentum", "nesterov"), [(0.0, False), (0.0, True), (0.5, False), (0.5, True), (0.875, False)]
)
def test_descent_is_its_recurrence(steps: int, momentum: float, nesterov: bool) -> None:
    """In rational numbers: b' = m b + 1 - mu a, a' = a + eta b', or a + eta (1 - mu a + m b') for Nesterov's."""
    eta = 0.5
    found = descent_filter(torch.tensor(MU, dtype=torch.float64), steps, Descent(eta, momentum, nesterov)).tolist()
    for mu, value in zip(MU, found, strict=True):
        a, b, m = Fraction(0), Fraction(0), Fraction(momentum)
        for _ in range(steps):
            force = 1 - Fraction(mu) * a
            b = m * b + force
            a = a + Fraction(eta) * (force + m * b if nesterov else b)
        assert value == pytest.approx(float(a), rel=1e-12, abs=1e-14)


def test_small_products_keep_their_digits() -> None:
    """1 - (1 - eta mu)^t for eta mu far below the machine epsilon, and on both sides of one half."""
    with mpmath.workdps(60):
        for mu in (1e-20, 1e-12, 4.9, 4.99999, 5.00001, 5.1, 19.0):
            value = float(descent_filter(torch.tensor([mu], dtype=torch.float64), 1000, Descent(0.1)))
            x = mpmath.mpf(mu)
            expected = (1 - (1 - mpmath.mpf(0.1) * x) ** 1000) / x
            assert abs(value - expected) <= 1e-13 * abs(expected)


@pytest.mark.parametrize(
    ("momentum", "nesterov", "expected"),
    [(0.0, False, 2.0), (0.0, True, 2.0), (0.5, False, 3.0), (0.5, True, 1.5), (0.9, True, 3.8 / 2.8)],
)
def test_stability(momentum: float, nesterov: bool, expected: float) -> None:
    assert Descent(0.1, momentum, nesterov).stability == pytest.approx(expected, rel=1e-15)
    # just inside it a thousand steps stay bounded, just outside they do not
    inside, outside = (
        abs(
            float(
                descent_filter(
                    torch.tensor([share * expected], dtype=torch.float64), 2000, Descent(1.0, momentum, nesterov)
                )
            )
        )
        for share in (0.98, 1.02)
    )
    assert inside < 10 < 1e6 < outside


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((True,), InputTypeError), (("0.1",), InputTypeError), ((0.1, None), InputTypeError), ((0.1, False), InputTypeError),
        ((0.0,), InputError), ((-0.1,), InputError), ((math.inf,), InputError), ((math.nan,), InputError),
        ((0.1, 1.0), InputError), ((0.1, -1e-9), InputError), ((0.1, math.nan), InputError),
    ],
)  # fmt: skip
def test_bad_rates(arguments: tuple[float, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        Descent(*arguments)
    assert Descent(1, 0).learning_rate == 1 and Descent(5e-324, 0.999).momentum == 0.999
