"""Quasi-random neurons: Gaussian each, independent between batches, even along the principal directions."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.cases import normal
from tests.labels.hierarchy import two_layer_oracle as oracle
from torch import Tensor
from torch.func import grad, jvp
from torch.quasirandom import SobolEngine

from ntkit._src.labels.hierarchy import _neuron_terms
from ntkit._src.labels.hierarchy._neuron_terms import (
    BITS,
    DIRECTIONS,
    Contraction,
    Neurons,
    derivatives,
    fourth_of_neurons,
)


@pytest.mark.parametrize(("n", "d"), [(6, 3), (2, 5), (1, 4)])
def test_each_neuron_is_standard_normal(n: int, d: int) -> None:
    """Over many scrambles, also where the inputs span less than the space and the rest is pseudo-random."""
    neurons, runs = Neurons(normal(n, d), 0), 1500
    w, more = (torch.stack(parts) for parts in zip(*(neurons.draw(4, 2) for _ in range(runs)), strict=True))
    assert w.shape == (runs, d, 4)
    assert more.shape == (runs, 2, 4)
    first = torch.cat([w, more], 1)[:, :, 1]
    identity = torch.eye(d + 2, dtype=torch.float64)
    torch.testing.assert_close(first.T @ first / runs, identity, rtol=0, atol=0.12)
    assert first.mean(0).abs().max() < 0.1
    assert abs((first**4).mean() - 3) < 0.4
    # Batches are independent: the same neuron of the next one has no correlation with it.
    assert (first[1:].T @ first[:-1] / runs).abs().max() < 0.12


def test_even_along_principal_directions() -> None:
    """Means over neurons of a function of the first direction are far better than chance; so are those of each aligned run."""
    x = normal(40, 100) * torch.linspace(3, 0.1, 100, dtype=torch.float64)
    axis = torch.linalg.svd(x).Vh[0]
    w = torch.stack([Neurons(x, seed).draw(1024)[0] for seed in range(6)])
    means = (
        torch.special.ndtr(axis @ w).unflatten(1, (4, 256)).mean(2)
    )  # of uniform variables, one in each of 256 cells
    assert (means - 0.5).abs().max() < 1 / 512  # chance: 0.02 each
    assert (means.mean(1) - 0.5).abs().max() < 1 / 2048


def test_directions_are_few_and_within_the_inputs() -> None:
    assert Neurons(normal(200, 150), 0).basis.shape == (150, DIRECTIONS)
    assert Neurons(torch.zeros(3, 4, dtype=torch.float64), 0).basis.shape == (4, 1)
    low_rank = normal(10, 2) @ normal(2, 7, seed=1)
    basis = Neurons(low_rank, 0).basis
    assert basis.shape == (7, 2)
    torch.testing.assert_close(low_rank @ basis @ basis.T, low_rank)


def test_quantiles_are_those_of_the_middle_of_a_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last Sobol point give opposite weights, and the point 1/2 half a cell more than zero."""
    grid = SobolEngine(3, scramble=True, seed=0).draw(64, dtype=torch.float64) * 2**BITS
    assert torch.equal(grid, grid.round())
    assert (grid % 2 == 1).any()

    class Ends:
        def __init__(self, dimension: int, **options: object) -> None:
            assert dimension == 1

        def draw(self, count: int, dtype: torch.dtype) -> Tensor:
            return torch.tensor([[0.0], [1 - 2.0**-BITS], [0.5]], dtype=dtype)

    monkeypatch.setattr(_neuron_terms, "SobolEngine", Ends)
    first, last, middle = Neurons(torch.ones(1, 1, dtype=torch.float64), 0).draw(3)[0][0].abs()
    assert 6 < first < 6.3  # the quantile of 2^-31 is -6.23
    torch.testing.assert_close(last, first, rtol=1e-9, atol=0)
    torch.testing.assert_close(middle, torch.tensor(2.0 ** -(BITS + 1) * (2 * torch.pi) ** 0.5).double())


def test_seeds() -> None:
    x = normal(5, 3)
    assert torch.equal(Neurons(x, 7).draw(8)[0], Neurons(x, 7).draw(8)[0])
    assert not torch.allclose(Neurons(x, 7).draw(8)[0], Neurons(x, 8).draw(8)[0])


Theta = tuple[Tensor, Tensor]


def nested(function: Callable[[Tensor], Tensor], theta: Theta, x: Tensor) -> Tensor:
    """K_r(x_1, ..., x_r) of a finite network by nested derivatives along gradients."""

    def gradient(theta: Theta, x: Tensor) -> Theta:
        def f(theta: Theta) -> Tensor:
            a, w = theta
            return a @ function(w @ x) / len(a) ** 0.5

        result: Theta = grad(f)(theta)
        return result

    def kernel(theta: Theta, r: int) -> Tensor:
        if r == 2:
            return sum((p * q).sum() for p, q in zip(gradient(theta, x[0]), gradient(theta, x[1]), strict=True))
        result: Tensor = jvp(lambda theta: kernel(theta, r - 1), (theta,), (gradient(theta, x[r - 1]),))[1]
        return result

    return kernel(theta, len(x))


def slopes(function: Callable[[Tensor], Tensor]) -> list[Callable[[Tensor], Tensor]]:
    return [lambda z, order=order: derivatives(function, z, order)[order] for order in range(4)]


@pytest.mark.parametrize("function", [torch.tanh, torch.erf, torch.nn.functional.gelu])
def test_paper_formulas_equal_nested_autograd(function: Callable[[Tensor], Tensor]) -> None:
    """Eqs (13), (14) and (15), term by term, as printed."""
    a, w, x = normal(6), normal(6, 4, seed=1), normal(4, 4, seed=2)
    for order, formula in ((2, oracle.second), (3, oracle.third), (4, oracle.fourth)):
        expected = nested(function, (a, w), x[:order])
        torch.testing.assert_close(formula(slopes(function), a, w, x[:order]), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", [torch.tanh, torch.nn.functional.softplus])
def test_contraction_equals_nested_autograd(function: Callable[[Tensor], Tensor]) -> None:
    """The matrix products give sum_q u_qi v_qj K4 of an actual network."""
    a, w, x, x1, x2 = normal(5), normal(5, 3, seed=1), normal(3, 3, seed=2), normal(2, 3, seed=3), normal(2, 3, seed=4)
    u, v = normal(2, 3, seed=5), normal(2, 3, seed=6)
    entries = torch.stack(
        [nested(function, (a, w), torch.stack([p, q, r, s])) for p in x1 for q in x2 for r in x for s in x]
    ).reshape(2, 2, 3, 3)
    found = fourth_of_neurons(function, True, w.T, a**2, a**4, Contraction.of(x, u, v), x1, x2) / len(a) ** 2
    torch.testing.assert_close(found, torch.einsum("abij,qi,qj->ab", entries, u, v), rtol=1e-10, atol=1e-13)
    assert not torch.allclose(found, torch.einsum("abij,qj,qi->ab", entries, u, v))  # i and j are not exchangeable
