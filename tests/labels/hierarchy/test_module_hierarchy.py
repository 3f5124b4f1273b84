"""The hierarchy of a module, of its present parameters or averaged over random networks, against single contractions."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.cases import mlp, normal
from tests.labels.hierarchy.module_cases import case, close
from torch import Tensor, nn

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit.labels import ModuleHierarchy


def test_the_source_sums_pairs_and_gives_diagonals():
    net, _, x1, x2, x, vectors = case("mlp")
    u, v = torch.stack(vectors[:2]), torch.stack(vectors[1:])
    single = ModuleHierarchy(net, x)
    close(single.second(x1, x2), ntkit.hierarchy_kernel(net, x1, x2))
    close(single.third(x1, x2, u[0]), ntkit.hierarchy_kernel(net, x1, x2, [u[0]], x))
    expected = sum(ntkit.hierarchy_kernel(net, x1, x2, [a, b], x) for a, b in zip(u, v, strict=True))
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
    each = [ntkit.hierarchy_kernel(one.module, x1, x2, [u[0], u[0]], x) for one in mc.networks(x)]
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
    wide = mlp(3, 4, 2, activation=nn.Tanh).double()
    with pytest.raises(InputError, match="below the module's 2 outputs"):
        ModuleHierarchy(wide, normal(4, 3), output=2)


NET, X, U = mlp(3, 4, 1, activation=nn.Tanh).double(), normal(4, 3), normal(4)
ERRORS = {
    "samples": (lambda: ModuleHierarchy(NET, X, -1), InputError, "n_samples must be"),
    "train points": (lambda: ModuleHierarchy(NET, X.tolist()), InputTypeError, "x_train must be a torch.Tensor"),
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


X, Y = normal(4, 3), torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)


class Written(nn.Module):
    """A leaky ReLU that no list of layers knows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        return self.last(torch.where(z > 0, z, 0.1 * z))


def net(*activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), *activation, nn.Linear(6, 1)).double()


KINKED = {"relu": net(nn.ReLU()), "leaky_relu": net(nn.LeakyReLU()), "hardtanh": net(nn.Hardtanh()), "gt": Written().double(),
          "prelu": net(nn.PReLU())}  # fmt: skip


@pytest.mark.parametrize("name", KINKED)
def test_kinks_of_the_slope_are_refused_from_the_third_kernel_on(name):
    module = KINKED[name]
    for n_samples in (0, 2) if name == "relu" else (0,):
        with pytest.raises(
            InputError, match=rf'{name}, whose value or slope jumps.*nn.GELU.*TangentHierarchy\("relu"\)'
        ):
            ntkit.TangentHierarchy(module=module, n_samples=n_samples).fit(X, Y)
    with pytest.raises(InputError, match=rf"{name}, whose value or slope jumps"):
        ntkit.finite_width_correction(module, X, Y, t=1.0)
    hierarchy = ModuleHierarchy(module, X)
    torch.testing.assert_close(hierarchy.second(X), ntkit.empirical(module).ntk(X))
    for order, act in (
        (3, lambda: hierarchy.third(X, None, Y)),
        (4, lambda: hierarchy.fourth(X, None, Y[None], Y[None])),
    ):
        with pytest.raises(InputError, match=rf"up to K{order} needs.*order {order - 2} are continuous"):
            act()


def test_kinks_of_the_curvature_are_refused_from_the_fourth_kernel_on():
    module = net(nn.ELU())
    hierarchy = ModuleHierarchy(module, X)
    expected = ntkit.hierarchy_kernel(module, X, vectors=[Y], x=X)
    torch.testing.assert_close(hierarchy.third(X, None, Y), expected)
    assert hierarchy.third_diag(X, Y).shape == (4,)
    with pytest.raises(InputError, match=r"elu, whose curvature jumps \(K4"):
        hierarchy.fourth_diag(X, Y[None], Y[None])
    with pytest.raises(InputError, match="elu, whose curvature jumps"):
        ntkit.TangentHierarchy(module=module, n_samples=0).fit(X, Y)


def test_third_kernel_of_the_elu_is_the_mean_rate_and_that_of_the_relu_is_not():
    """The mean of K2 over draws moves along a direction as K3 says if K3 has no delta function; that of the ReLU does not."""
    step, draws = 0.05, 200_000
    w, b = (normal(draws, seed=seed) for seed in (0, 1))
    for function, equal in ((F.elu, True), (F.relu, False)):

        def slope(z, function=function):
            z = z.clone().requires_grad_()
            return torch.autograd.grad(function(z).sum(), z, create_graph=True)[0], z

        # The entry sigma'(w + b) sigma'(w) of a kernel, b growing: its mean over w and b, and the mean of its derivative.
        first = slope(w)[0].detach()
        ends = [float((slope(w + b * s)[0].detach() * first).mean()) for s in (1 - step, 1 + step)]
        moving, z = slope(w + b)
        rate = torch.zeros(())
        if moving.requires_grad:
            (second,) = torch.autograd.grad(moving.sum(), z)
            rate = (second * b * first).mean().detach()
        measured = (ends[1] - ends[0]) / (2 * step)
        assert (abs(measured - float(rate)) < 0.1 * abs(measured)) == equal


def test_nothing_is_asked_at_the_start():
    nth = ntkit.TangentHierarchy(module=KINKED["relu"], n_samples=0, time=0.0).fit(X, Y)
    torch.testing.assert_close(nth(X), ntkit.empirical(KINKED["relu"]).ntk(X))
    with pytest.raises(InputError, match="relu"):
        nth.at(1.0).label_part(X)


def test_kinks_of_frozen_layers_do_not_matter():
    module = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)).double()
    module[0].requires_grad_(False)
    assert ntkit.TangentHierarchy(module=module, n_samples=0, ridge=1e-3).fit(X, Y).label_part(X).shape == (4, 4)


@pytest.mark.parametrize(
    "function", [F.relu, torch.relu, F.leaky_relu, torch.abs, F.elu, lambda z: z * (z > 0), F.relu6]
)
def test_activations_of_two_layers(function):
    with pytest.raises(InputError, match='two continuous derivatives.*activation="relu"'):
        ntkit.TangentHierarchy(function)


def test_smooth_activations_of_two_layers():
    assert ntkit.TangentHierarchy(lambda z: z * torch.sigmoid(z)).activation is not None
