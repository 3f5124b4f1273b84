"""K2, K3, K4, ... of finite networks against towers of explicit Jacobians."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.labels.hierarchy.module_cases import CASES, case, close, normal, tower
from torch import nn

import ntkit
from ntkit._src.labels import ModuleHierarchy
from ntkit.errors import InputError, InputTypeError


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_contractions_are_those_of_explicit_jacobians(name):
    net, twin, x1, x2, x, vectors = case(name)
    for k in range(len(vectors) + 1):
        expected = tower(twin, x1, x2, x, vectors[:k])
        close(ntkit.tangent_hierarchy(net, x1, x2, vectors[:k], x), expected)
        if k < 3:  # one row at a time, and one input against itself
            close(
                ntkit.tangent_hierarchy(net, x1, None, vectors[:k], x, byte_budget=1),
                tower(twin, x1, x1, x, vectors[:k]),
            )


def test_entries_by_unit_vectors():
    net, _, x1, x2, x, vectors = case("mlp")
    unit = torch.eye(4, dtype=torch.float64)
    third = torch.stack([ntkit.tangent_hierarchy(net, x1, x2, [e], x) for e in unit], -1)
    close(third @ vectors[0], ntkit.tangent_hierarchy(net, x1, x2, vectors[:1], x))
    fourth = torch.stack(
        [torch.stack([ntkit.tangent_hierarchy(net, x1, None, [a, b], x) for b in unit], -1) for a in unit], -2
    )
    close(torch.einsum("abij,i,j", fourth, *vectors[:2]), ntkit.tangent_hierarchy(net, x1, None, vectors[:2], x))
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
    wide = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    narrow = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for mine, theirs in zip(narrow.parameters(), wide.parameters(), strict=True):
            mine.copy_(theirs if mine.shape == theirs.shape else theirs[1:])
    x, u = normal(4, 3), normal(4, seed=1)
    close(
        ntkit.tangent_hierarchy(wide, x, None, [u, u], x, output=1), ntkit.tangent_hierarchy(narrow, x, None, [u, u], x)
    )
    with pytest.raises(InputError, match="The module has 2. Write output=0"):
        ntkit.tangent_hierarchy(wide, x)


NET, X, U = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(), normal(4, 3), normal(4)
ERRORS = {
    "no module": (lambda: ntkit.tangent_hierarchy(torch.tanh, X), InputTypeError, "must be a torch.nn.Module"),
    "no points": (
        lambda: ntkit.tangent_hierarchy(NET, X, None, [U]),
        InputError,
        "x must be the inputs that the vectors",
    ),
    "length": (
        lambda: ntkit.tangent_hierarchy(NET, X, None, [U[:3]], X),
        InputError,
        r"vectors\[0\] must have shape \(4,\)",
    ),
    "NaN": (lambda: ntkit.tangent_hierarchy(NET, X, None, [U * torch.nan], X), InputError, "finite"),
    "dtype": (lambda: ntkit.tangent_hierarchy(NET, X, None, [U.float()], X), InputTypeError, "must be torch.float64"),
    "list": (lambda: ntkit.tangent_hierarchy(NET, X, None, [[1.0] * 4], X), InputTypeError, "must be a tensor"),
    "inputs": (lambda: ntkit.tangent_hierarchy(NET, X.float()), InputTypeError, "dtype of the module"),
    "empty": (lambda: ntkit.tangent_hierarchy(NET, X[:0]), InputError, "at least one row"),
    "output": (lambda: ntkit.tangent_hierarchy(NET, X, output="sum"), InputTypeError, "index of one output"),
    "budget": (lambda: ntkit.tangent_hierarchy(NET, X, byte_budget=0), InputError, "byte_budget must be"),
    "training": (
        lambda: ntkit.tangent_hierarchy(nn.Sequential(nn.Dropout(), *NET).train(), X),
        InputError,
        "evaluation mode",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()
