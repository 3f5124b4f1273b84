"""Tables: the interpolation by its definition, cells of variances, and functions whose expectations have closed forms."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal

from ntkit._src.program import AnyFunction
from ntkit._src.rules.expectations import _table
from ntkit._src.rules.expectations._table import mean_tabulated, table_dual, table_mean, tabulated
from ntkit.errors import InputError

SQUARE = AnyFunction(lambda z: z * z + z, label="z^2 + z")


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def exact(rho, q1, q2):
    """E[(u^2 + u)(v^2 + v)] = q1 q2 (1 + 2 rho^2) + k, and E[(2 u + 1)(2 v + 1)] = 4 k + 1."""
    k = rho * torch.sqrt(q1 * q2)
    return q1 * q2 * (1 + 2 * rho**2) + k, 4 * k + 1


def test_chebyshev():
    x = torch.linspace(-1, 1, 9, dtype=torch.float64)
    expected = torch.cos(torch.arange(7) * torch.acos(x)[:, None])
    torch.testing.assert_close(_table._chebyshev(x, 7), expected, rtol=0, atol=1e-14)
    assert _table._chebyshev(x, 1).shape == (9, 1)
    coefficients = normal(6, 9)
    summed = (coefficients.T * expected[:, :6]).sum(1)
    torch.testing.assert_close(_table._clenshaw(coefficients, x), summed, rtol=0, atol=1e-14)
    torch.testing.assert_close(_table._clenshaw(coefficients[:1], x), coefficients[0])


@pytest.mark.parametrize("order", [3, 16])
def test_transform_takes_values_to_coefficients(order):
    values = _table._chebyshev(_table._nodes(order), order)
    torch.testing.assert_close(
        _table._transform(order) @ values, torch.eye(order, dtype=torch.float64), rtol=0, atol=1e-14
    )


def test_cells():
    """A cell holds variances from 16^c on, below 16^(c + 1); its positions go from -1 to 1 in the logarithm."""
    q = f64([1.0, 15.999, 16.0, 0.99, 1 / 16, 4.0])
    assert _table.cells(q).tolist() == [0, 0, 1, -1, -1, 0]
    _, basis = _table._located(q)
    torch.testing.assert_close(basis[:, 1], f64([-1, 1, -1, 1, -1, 0]), rtol=0, atol=0.01)
    position = f64([-1.0, 0.0, 0.5, 1.0])
    for number in (-2, 0, 3):
        deviations = _table._deviations(number, position)
        torch.testing.assert_close(torch.log2(deviations**2), 4 * (number + (position + 1) / 2))
    with pytest.raises(InputError, match="finite"):
        _table.cells(f64([1.0, math.nan]))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("q1", "q2"),
    [
        ((4, 1), (1, 3)),  # rows and columns, several cells
        ((12,), (12,)),  # entries with two variances each
        ((5, 4, 1), (5, 1, 3)),  # small matrices
        ((2, 9, 1), (2, 1, 8)),  # large ones
        ((1, 1), (1, 1)),
        ((4, 1, 3), (1, 2, 3)),  # a batch behind rows and columns
    ],
)
def test_shapes(which, q1, q2):
    generator = torch.Generator().manual_seed(1)
    v1, v2 = (torch.exp(1.5 * torch.randn(shape, dtype=torch.float64, generator=generator)) for shape in (q1, q2))
    shape = torch.broadcast_shapes(q1, q2)
    rho = 2 * torch.rand(shape, dtype=torch.float64, generator=generator) - 1
    found = table_dual(SQUARE, which, torch.asin(rho), v1, v2)
    scale = torch.sqrt(exact(torch.ones_like(rho), v1, v1)[which] * exact(torch.ones_like(rho), v2, v2)[which])
    assert found.shape == shape
    assert ((found - exact(rho, v1, v2)[which]).abs() < 1e-11 * scale).all()
    swapped = table_dual(SQUARE, which, torch.asin(rho), v2.expand_as(rho), v1.expand_as(rho))
    assert ((found - swapped).abs() < 1e-12 * scale).all()


def test_empty():
    assert table_dual(SQUARE, 0, torch.zeros(0, 3), torch.ones(0, 1), torch.ones(1, 3)).shape == (0, 3)


def test_chunks_give_the_same_values_and_gradients(monkeypatch):
    rho, q1, q2 = torch.linspace(-0.9, 0.9, 20, dtype=torch.float64).reshape(5, 4), f64([[1.5]] * 5), f64([[2.0] * 4])
    results = []
    for chunk in (_table._CHUNK, 200):
        monkeypatch.setattr(_table, "_CHUNK", chunk)
        theta, v1 = torch.asin(rho).requires_grad_(), q1.clone().requires_grad_()
        value = table_dual(SQUARE, 0, theta, v1, q2)
        results.append((value.detach(), *torch.autograd.grad(value.sum(), (theta, v1))))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)
    k = rho * torch.sqrt(q1 * q2)
    slope = 4 * k * q1.sqrt() * q2.sqrt() + torch.sqrt(q1 * q2)  # of q1 q2 + 2 k^2 + k in rho
    torch.testing.assert_close(results[0][1], slope * torch.sqrt(1 - rho**2), rtol=1e-10, atol=1e-10)


def test_rows_beyond_the_limit_come_one_at_a_time(monkeypatch):
    """A row that alone holds more numbers than allowed is a chunk, and two are not."""
    rows, matrix = [], _table._matrix

    def counted(c, basis1, basis2, x):
        rows.append(len(x))
        return matrix(c, basis1, basis2, x)

    monkeypatch.setattr(_table, "_matrix", counted)
    monkeypatch.setattr(_table, "_CHUNK", 1)
    table_dual(SQUARE, 0, torch.zeros(3, 4, dtype=torch.float64), f64([[1.5]] * 3), f64([[2.0] * 4]))
    assert rows == [1, 1, 1]


def test_means():
    q = f64([[1e-3, 0.5], [17.0, 300.0]])
    torch.testing.assert_close(table_mean(SQUARE, q), q, rtol=1e-12, atol=0)
    assert mean_tabulated(SQUARE, q).all()
    quick = AnyFunction(lambda z: torch.sin(40 * z) + torch.cos(40 * z), label="quick")
    assert mean_tabulated(quick, f64([1e-4, 2e3])).tolist() == [True, False]


def test_what_has_a_table():
    assert tabulated(SQUARE, f64([[1.0], [20.0]]), f64([3.0, 0.01])).all()
    quick = AnyFunction(lambda z: torch.sin(40 * z), label="quick sine")
    good = tabulated(quick, f64([[1e-4], [5e3]]), f64([1e-4, 5e3]))
    assert good[0, 0] and not good[1, 1]


def test_significant_orders():
    coefficients = torch.zeros(6, 2, 2, dtype=torch.float64)
    assert _table._significant(coefficients, 1.0) == 1
    coefficients[3, 1, 0] = -1e-12
    assert _table._significant(coefficients, 1.0) == 4
    assert _table._significant(coefficients, 10.0) == 1
