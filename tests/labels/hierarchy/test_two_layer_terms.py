"""Eq. (15) of Chen, He and Su (2020) contracted over neurons, against nested autograd of a finite network."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.labels.hierarchy import two_layer_oracle as oracle
from torch import Tensor
from torch.func import grad, jvp

from ntkit._src.labels.hierarchy._two_layer_terms import Contraction, derivatives, fourth_of_neurons

Theta = tuple[Tensor, Tensor]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


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
    a, w, x = draw(6), draw(6, 4, seed=1), draw(4, 4, seed=2)
    for order, formula in ((2, oracle.second), (3, oracle.third), (4, oracle.fourth)):
        expected = nested(function, (a, w), x[:order])
        torch.testing.assert_close(formula(slopes(function), a, w, x[:order]), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("function", [torch.tanh, torch.nn.functional.softplus])
def test_contraction_equals_nested_autograd(function: Callable[[Tensor], Tensor]) -> None:
    """The matrix products give sum_q u_qi v_qj K4 of an actual network."""
    a, w, x, x1, x2 = draw(5), draw(5, 3, seed=1), draw(3, 3, seed=2), draw(2, 3, seed=3), draw(2, 3, seed=4)
    u, v = draw(2, 3, seed=5), draw(2, 3, seed=6)
    entries = torch.stack(
        [nested(function, (a, w), torch.stack([p, q, r, s])) for p in x1 for q in x2 for r in x for s in x]
    ).reshape(2, 2, 3, 3)
    found = fourth_of_neurons(function, True, w.T, a**2, a**4, Contraction.of(x, u, v), x1, x2) / len(a) ** 2
    torch.testing.assert_close(found, torch.einsum("abij,qi,qj->ab", entries, u, v), rtol=1e-10, atol=1e-13)
    assert not torch.allclose(found, torch.einsum("abij,qj,qi->ab", entries, u, v))  # i and j are not exchangeable
