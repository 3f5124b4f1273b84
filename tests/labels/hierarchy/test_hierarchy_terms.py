"""The symbolic program against eq. (11), dense derivative tensors and nested derivatives."""

from __future__ import annotations

import string

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

import ntkit
from ntkit._src.labels import HierarchyTerm
from ntkit.errors import InputError, InputTypeError


def network(widths=(2, 2, 1)) -> nn.Module:
    """f = W3 sigma(W2 sigma(W1 x)), the family of section B.1."""
    layers: list[nn.Module] = []
    fan_in = 2
    for width in widths:
        layers += [nn.Linear(fan_in, width, bias=False), nn.Tanh()]
        fan_in = width
    net = nn.Sequential(*layers[:-1]).double()
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draws, dtype=torch.float64))
    return net


def points(r):
    return torch.randn(r, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def derivative_tensors(net, x, highest):
    """Give every derivative of f at every point up to an order as a dense tensor of shape (P, ..., P)."""
    trained = dict(net.named_parameters())
    sizes = [p.numel() for p in trained.values()]

    def value(theta, row):
        pieces = zip(trained.items(), theta.split(sizes), strict=True)
        return functional_call(net, {name: v.view_as(p) for (name, p), v in pieces}, (row[None],))[0, 0]

    theta = torch.cat([p.detach().reshape(-1) for p in trained.values()])
    found = []
    for row in x:
        function, tensors = (lambda point, row=row: value(point, row)), []
        for _ in range(highest):
            function = jacrev(function)
            tensors.append(function(theta).detach())
        found.append(tensors)
    return found


@pytest.mark.parametrize("r", [2, 3, 4, 5])
def test_terms_are_nested_derivatives(r):
    """Each term is the contraction of dense tensors that it writes, and the terms sum to the kernel."""
    net, x = network((1, 2, 1) if r == 5 else (2, 2, 1)), points(r)
    terms = ntkit.hierarchy_terms(r)
    tensors = derivative_tensors(net, x, r - 1)
    values = terms.evaluate(net, x)
    dense = []
    for term in terms:
        subscripts = ["".join(string.ascii_letters[weight] for weight in weights) for weights in term.factors]
        factors = [tensors[point][len(weights) - 1] for point, weights in enumerate(term.factors)]
        dense.append(torch.einsum(",".join(subscripts) + "->", *factors))
    scale = float(values.abs().max())
    torch.testing.assert_close(values, torch.stack(dense), rtol=0, atol=1e-12 * scale)
    unit = torch.eye(r, dtype=torch.float64)[2:]
    nested = ntkit.tangent_hierarchy(net, x[:1], x[1:2], list(unit), x)
    torch.testing.assert_close(values.sum(), nested[0, 0], rtol=0, atol=1e-10 * scale)


def test_program_of_the_paper():
    """Raise every factor of every term in turn, and append the new gradient: section B.1, steps 1 to 4."""
    terms = [((0,), (0,))]  # the weights of each factor of K2
    for r in range(2, 8):
        assert [term.factors for term in ntkit.hierarchy_terms(r)] == terms
        assert len(ntkit.hierarchy_terms(r)) == len(terms)
        assert sum(ntkit.hierarchy_terms(r).counts().values()) == len(terms)
        terms = [
            (*(weights + (r - 1,) * (raised == point) for point, weights in enumerate(term)), (r - 1,))
            for term in terms
            for raised in range(r)
        ]


def test_text():
    text = str(ntkit.hierarchy_terms(6))
    assert text.startswith("K₆(α, β, γ, ξ, x₅, x₆): 120 terms") and text.count("\n") == 120
    assert str(ntkit.hierarchy_terms(7)).endswith("+ ... (600 more)")
    assert "K₂(α, β): 1 term," in str(ntkit.hierarchy_terms(2))
    assert len(str(HierarchyTerm((0,) * 30)).split()) == 31
    assert ntkit.hierarchy_terms(5).counts() == {2: 8, 3: 14, 4: 2}


def test_large_orders_are_not_stored():
    assert next(iter(ntkit.hierarchy_terms(30))).highest == 29


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ntkit.hierarchy_terms(1), InputError, "at least 2"),
        (lambda: ntkit.hierarchy_terms(3.0), InputTypeError, "integer"),
        (lambda: ntkit.hierarchy_terms(True), InputTypeError, "integer"),
        (
            lambda: ntkit.hierarchy_terms(3).evaluate(network(), points(4)),
            InputError,
            "the 3 inputs of the kernel. Got 4",
        ),
        (lambda: ntkit.hierarchy_terms(3).evaluate(network((2, 3)), points(3)), InputError, "has 3"),
    ],
)
def test_errors(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
