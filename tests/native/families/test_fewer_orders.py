"""Sums over Hermite orders by a few nodes with weights, on coefficients that are known."""

import pytest
import torch

from ntkit._src.native.families._fewer_orders import fewer_orders

ORDERS = torch.arange(1, 256, 2)


def falling(s, orders=ORDERS):
    """Coefficients that fall like those of a function with poles at a distance 1.6 / s."""
    n = orders.to(torch.float64)
    return torch.exp(-1.6 * n.sqrt() / s[:, None]) * n ** (-0.25 * s[:, None])


def deviations(count, shift=0.0):
    return torch.linspace(0.05, 1.3, count, dtype=torch.float64) + shift


@pytest.mark.parametrize("rho", [1.0, 0.9999, 0.9, 0.3, -0.7, -1.0])
def test_few_nodes_give_the_whole_sum(rho):
    nodes, weights = fewer_orders(ORDERS, falling(deviations(40)), falling(deviations(31, 0.01)), 32)
    assert len(nodes) < 25 and bool((weights > 0).all()) and nodes.tolist() == sorted(nodes.tolist())
    alpha, n = falling(deviations(9, 0.007)), ORDERS.to(torch.float64)
    for power in (0, 1):
        half = alpha * n ** (power / 2)
        half = half / half.norm(dim=1, keepdim=True)
        whole = torch.einsum("in,jn,n->ij", half, half, rho ** (n - 1))
        few = torch.einsum("in,jn,n->ij", half[:, nodes], half[:, nodes], weights * rho ** (n - 1)[nodes])
        assert float((whole - few).abs().max()) < 2e-12


def test_coefficients_of_both_parities_are_fitted_on_both_sides():
    orders = torch.arange(1, 100)
    uneven = torch.where(orders % 2 == 0, 0.3, 1.0)
    first, second = (uneven * falling(deviations(count), orders) for count in (40, 31))
    nodes, _ = fewer_orders(orders, first, second, 32)
    assert len(nodes) < 60 and bool((orders[nodes] % 2 == 0).any()) and bool((orders[nodes] % 2 == 1).any())


def test_all_orders_where_fewer_do_not_suffice():
    """With one distance between nodes allowed, no choice is left; a fit that the check refutes is not taken."""
    alpha, others = falling(deviations(40)), falling(deviations(31, 0.01))
    for nodes, weights in (
        fewer_orders(ORDERS, alpha, others, 1),
        fewer_orders(ORDERS, alpha, others * (1 + 0.5 * torch.sin(ORDERS.to(torch.float64))), 32),
    ):
        assert nodes.tolist() == list(range(len(ORDERS))) and weights.tolist() == [1.0] * len(ORDERS)
