"""The hierarchy of a module, of its present parameters or averaged over random networks, against single contractions."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.labels.hierarchy.module_cases import case, close, normal
from torch import nn

import ntkit
from ntkit._src.labels import ModuleHierarchy
from ntkit.errors import InputError, InputTypeError


def test_the_source_sums_pairs_and_gives_diagonals():
    net, _, x1, x2, x, vectors = case("mlp")
    u, v = torch.stack(vectors[:2]), torch.stack(vectors[1:])
    single = ModuleHierarchy(net, x)
    close(single.second(x1, x2), ntkit.tangent_hierarchy(net, x1, x2))
    close(single.third(x1, x2, u[0]), ntkit.tangent_hierarchy(net, x1, x2, [u[0]], x))
    expected = sum(ntkit.tangent_hierarchy(net, x1, x2, [a, b], x) for a, b in zip(u, v, strict=True))
    close(single.fourth(x1, x2, u, v), expected)
    small = ModuleHierarchy(net, x, byte_budget=1)
    close(small.fourth(x1, x2, u, v), expected)
    for hierarchy in (single, small):
        close(hierarchy.second_diag(x1), single.second(x1).diagonal())
        close(hierarchy.third_diag(x1, u[0]), single.third(x1, x1, u[0]).diagonal())
        close(hierarchy.fourth_diag(x1, u, v), single.fourth(x1, None, u, v).diagonal())


def test_mean_over_networks():
    net, _, x1, x2, x, vectors = case("mlp")
    u = torch.stack(vectors[:1])

    def source(seed=3):
        return ModuleHierarchy(net, x, 3, torch.Generator().manual_seed(seed))

    before = copy.deepcopy(net.state_dict())
    mean = source().fourth(x1, x2, u, u)
    assert torch.equal(mean, source().fourth(x1, x2, u, u))
    assert not torch.allclose(mean, source(4).fourth(x1, x2, u, u))
    mc = ntkit.monte_carlo(net, 3, generator=torch.Generator().manual_seed(3))
    close(source().second(x1, x2), mc.ntk(x1, x2))
    each = [ntkit.tangent_hierarchy(one.module, x1, x2, [u[0], u[0]], x) for one in mc.networks(x)]
    close(mean, sum(each) / 3)
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
    single = ModuleHierarchy(net.float(), x.float(), 3, torch.Generator().manual_seed(3))
    found = single.fourth(x1.float(), x2.float(), u.float(), u.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), mean, rtol=1e-3, atol=1e-4 * float(mean.abs().max()))


def test_present_parameters_are_kept():
    """The source does not follow the module's later training."""
    net, _, x1, x2, x, vectors = case("mlp")
    hierarchy = ModuleHierarchy(net, x)
    before = hierarchy.third(x1, x2, vectors[0])
    with torch.no_grad():
        net[0].weight.add_(1.0)
    assert torch.equal(before, hierarchy.third(x1, x2, vectors[0]))


def test_there_must_be_such_an_output():
    wide = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    with pytest.raises(InputError, match="below the module's 2 outputs"):
        ModuleHierarchy(wide, normal(4, 3), output=2)


NET, X, U = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double(), normal(4, 3), normal(4)
ERRORS = {
    "samples": (lambda: ModuleHierarchy(NET, X, -1), InputError, "n_samples must be"),
    "train points": (lambda: ModuleHierarchy(NET, X.tolist()), InputTypeError, "x_train must be a tensor"),
    "source module": (lambda: ModuleHierarchy(torch.tanh, X), InputTypeError, "must be a torch.nn.Module"),
    "one vector": (lambda: ModuleHierarchy(NET, X).fourth(X, X, U, U), InputError, "u must have shape"),
    "no vector": (
        lambda: ModuleHierarchy(NET, X).fourth(X, X, U[:0, None], U[:0, None]),
        InputError,
        "u must have shape",
    ),
    "pairs": (
        lambda: ModuleHierarchy(NET, X).fourth(X, X, U[None], U[None].expand(2, -1)),
        InputError,
        r"v must have shape \(1, 4\)",
    ),
    "third": (lambda: ModuleHierarchy(NET, X).third(X, X, None), InputTypeError, "u must be a tensor"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        call()
