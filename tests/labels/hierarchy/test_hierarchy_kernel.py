"""K2, K3, K4, ... of finite networks against towers of explicit Jacobians."""

from __future__ import annotations

import copy
import string

import pytest
import torch
from tests.cases import mlp, normal
from tests.labels.hierarchy.module_cases import CASES, case, close, tower
from torch import nn
from torch.func import functional_call, jacrev

import ntkit
from ntkit._src.labels.hierarchy._hierarchy_kernel import HierarchyTerm
from ntkit.errors import InputError, InputTypeError
from ntkit.labels import ModuleHierarchy


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_contractions_are_those_of_explicit_jacobians(name):
    net, twin, x1, x2, x, vectors = case(name)
    for k in range(len(vectors) + 1):
        expected = tower(twin, x1, x2, x, vectors[:k])
        close(ntkit.hierarchy_kernel(net, x1, x2, vectors[:k], x), expected)
        if k < 3:  # one row at a time, and one input against itself
            close(
                ntkit.hierarchy_kernel(net, x1, None, vectors[:k], x, byte_budget=1),
                tower(twin, x1, x1, x, vectors[:k]),
            )


def test_entries_by_unit_vectors():
    net, _, x1, x2, x, vectors = case("mlp")
    unit = torch.eye(4, dtype=torch.float64)
    third = torch.stack([ntkit.hierarchy_kernel(net, x1, x2, [e], x) for e in unit], -1)
    close(third @ vectors[0], ntkit.hierarchy_kernel(net, x1, x2, vectors[:1], x))
    fourth = torch.stack(
        [torch.stack([ntkit.hierarchy_kernel(net, x1, None, [a, b], x) for b in unit], -1) for a in unit], -2
    )
    close(torch.einsum("abij,i,j", fourth, *vectors[:2]), ntkit.hierarchy_kernel(net, x1, None, vectors[:2], x))
    close(fourth, fourth.transpose(0, 1))
    assert (fourth - fourth.transpose(2, 3)).abs().max() > 0.01 * fourth.abs().max()  # the order of the vectors matters


def test_it_is_how_gradient_flow_moves_the_kernel():
    """K2' = -K3 (f - y) and K2'' = (f - y) K4 (f - y) + K3 K2 (f - y), by differences along the flow itself."""
    net, _, x1, x2, x, _ = case("ntk")
    y, h = normal(4, seed=5), 5e-4

    def kernel_after(time):
        moved = copy.deepcopy(net)
        if time:
            ntkit.train(moved, x, y[:, None], ntkit.Schedule("flow", time=time, rtol=1e-12, atol=1e-14))
        return ntkit.empirical(moved).ntk(x1, x2)

    k0, k1, k2, k3, k4 = (kernel_after(j * h) for j in range(5))
    first = (-25 * k0 + 48 * k1 - 36 * k2 + 16 * k3 - 3 * k4) / (12 * h)
    second = (35 * k0 - 104 * k1 + 114 * k2 - 56 * k3 + 11 * k4) / (12 * h**2)
    r = net(x)[:, 0].detach() - y
    hierarchy = ModuleHierarchy(net, x)
    third = hierarchy.third(x1, x2, r)
    torch.testing.assert_close(-third, first, rtol=0, atol=1e-5 * float(third.abs().max()))
    expected = hierarchy.fourth(x1, x2, r[None], r[None]) + hierarchy.third(x1, x2, hierarchy.second(x) @ r)
    torch.testing.assert_close(second, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))


def test_one_of_several_outputs():
    wide = mlp(3, 4, 2, activation=nn.Tanh).double()
    narrow = mlp(3, 4, 1, activation=nn.Tanh).double()
    with torch.no_grad():
        for mine, theirs in zip(narrow.parameters(), wide.parameters(), strict=True):
            mine.copy_(theirs if mine.shape == theirs.shape else theirs[1:])
    x, u = normal(4, 3), normal(4, seed=1)
    close(
        ntkit.hierarchy_kernel(wide, x, None, [u, u], x, output=1), ntkit.hierarchy_kernel(narrow, x, None, [u, u], x)
    )
    with pytest.raises(InputError, match="The module has 2. Write output=0"):
        ntkit.hierarchy_kernel(wide, x)


NET, X, U = mlp(3, 4, 1, activation=nn.Tanh).double(), normal(4, 3), normal(4)
ERRORS = {
    "no module": (lambda: ntkit.hierarchy_kernel(torch.tanh, X), InputTypeError, "must be a torch.nn.Module"),
    "no points": (
        lambda: ntkit.hierarchy_kernel(NET, X, None, [U]),
        InputError,
        "x must be the inputs that the vectors",
    ),
    "length": (
        lambda: ntkit.hierarchy_kernel(NET, X, None, [U[:3]], X),
        InputError,
        r"vectors\[0\] must have shape \(4,\)",
    ),
    "NaN": (lambda: ntkit.hierarchy_kernel(NET, X, None, [U * torch.nan], X), InputError, "finite"),
    "dtype": (lambda: ntkit.hierarchy_kernel(NET, X, None, [U.float()], X), InputTypeError, "must be torch.float64"),
    "list": (lambda: ntkit.hierarchy_kernel(NET, X, None, [[1.0] * 4], X), InputTypeError, "must be a tensor"),
    "inputs": (lambda: ntkit.hierarchy_kernel(NET, X.float()), InputTypeError, "dtype of the module"),
    "empty": (lambda: ntkit.hierarchy_kernel(NET, X[:0]), InputError, "at least one row"),
    "output": (lambda: ntkit.hierarchy_kernel(NET, X, output="sum"), InputTypeError, "output must be an integer"),
    "budget": (lambda: ntkit.hierarchy_kernel(NET, X, byte_budget=0), InputError, "byte_budget must be"),
    "training": (
        lambda: ntkit.hierarchy_kernel(nn.Sequential(nn.Dropout(), *NET).train(), X),
        InputError,
        "evaluation mode",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()


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
    return normal(r, 2, seed=1)


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
    nested = ntkit.hierarchy_kernel(net, x[:1], x[1:2], list(unit), x)
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
def test_errors_of_terms(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
