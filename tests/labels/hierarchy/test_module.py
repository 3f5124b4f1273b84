"""K2, K3, K4, ... of finite networks against towers of explicit Jacobians."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit.labels import ModuleHierarchy
from ntkit.labels.hierarchy._contractions import Tangents, scalar_network


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class WrittenOutNorm(nn.LayerNorm):
    """Layer norm in elementary operations: torch's own is wrong from second order on (torch 2.13)."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / ((centred**2).mean(-1, keepdim=True) + self.eps) ** 0.5 * self.weight + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.MultiheadAttention(2, 1, batch_first=True)
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        return self.head(self.block(x, x, x)[0].mean(1))


def tied() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
    net[2].weight = net[0].weight
    return net


def frozen() -> nn.Module:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    net[0].weight.requires_grad_(False)
    return net


def mlp(norm=None) -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 3), *([norm(3)] if norm else []), nn.Tanh(), nn.Linear(3, 2), nn.GELU(), nn.Linear(2, 1)
    )


def ntk() -> nn.Module:
    return ntkit.initialize(
        ntkit.parametrize_ntk(nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 1)), b_std=0.3)
    )


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 1))


def kinked() -> nn.Module:
    norm = nn.BatchNorm2d(2)
    return nn.Sequential(nn.Conv2d(1, 2, 2), norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1)).eval()


# A module, its twin whose every derivative torch takes right, the shape of an input, the highest number of vectors.
CASES = {
    "mlp": (mlp, mlp, (3,), 3),
    "ntk": (ntk, ntk, (3,), 2),
    "cnn": (cnn, cnn, (1, 4, 3), 2),
    "layer norm": (lambda: mlp(nn.LayerNorm), lambda: mlp(WrittenOutNorm), (3,), 2),
    "attention": (Attention, Attention, (3, 2), 2),
    "tied": (tied, tied, (3,), 2),
    "frozen": (frozen, frozen, (3,), 2),
    "ReLU, max pool, batch norm": (kinked, kinked, (1, 4, 3), 2),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 1)),) * 2 + ((2,), 2),
}


def case(name):
    make, make_twin, shape, most = CASES[name]
    found = []
    for maker in (make, make_twin):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            found.append(maker().double())
    draw = (
        (lambda n, seed: torch.randint(5, (n, *shape), generator=torch.Generator().manual_seed(seed)))
        if name == "embedding"
        else (lambda n, seed: normal(n, *shape, seed=seed))
    )
    return (*found, draw(3, 1), draw(2, 2), draw(4, 3), [normal(4, seed=10 + k) for k in range(most)])


def tower(net, x1, x2, x, vectors):
    """Differentiate the kernel's matrix again and again by explicit Jacobians, where the gradients of x move too."""
    trained = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in trained.values()]

    def jacobian(theta, points):
        def outputs(flat):
            pieces = zip(trained.items(), flat.split(sizes), strict=True)
            return functional_call(net, {name: v.view_as(p) for (name, p), v in pieces}, (points,))[:, 0]

        return jacrev(outputs)(theta)

    def kernel(theta):
        return jacobian(theta, x1) @ jacobian(theta, x2).T

    def next_order(function, u):
        return lambda theta: jacrev(function)(theta) @ (u @ jacobian(theta, x))

    for u in vectors:
        kernel = next_order(kernel, u)
    with sdpa_kernel(SDPBackend.MATH):
        return kernel(torch.cat([p.reshape(-1) for p in trained.values()]))


def close(found, expected, digits=1e-11):
    torch.testing.assert_close(found, expected, rtol=0, atol=digits * max(1.0, float(expected.abs().max())))


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


def test_without_vmap():
    """Where vmap fails or disagrees, rows are taken one by one."""
    net, _, x1, x2, x, vectors = case("mlp")
    network = scalar_network(net, None, x1)
    slow = Tangents(network, x)
    slow._batched = False
    close(slow.gram(x1, x2, [vectors[:2]]), Tangents(network, x).gram(x1, x2, [vectors[:2]]))
    wrong = Tangents(network, x)
    wrong._agrees = lambda *_: False
    close(wrong.gram(x1, x2, [vectors[:2]]), slow.gram(x1, x2, [vectors[:2]]))
    assert not wrong._batched


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
    with pytest.raises(InputError, match="below the module's 2 outputs"):
        ModuleHierarchy(wide, x, output=2)


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
