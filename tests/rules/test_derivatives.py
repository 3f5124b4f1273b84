"""Derivatives of kernels in every mode of torch, against differences in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.cases import Function, mlp, normal
from torch import Tensor, nn
from torch.autograd import forward_ad

import ntkit
from ntkit.errors import InputError

X1, X2, ALONG = (normal(n, 4, seed=n) for n in (3, 2, 3))


def _kinked(z: Tensor) -> Tensor:  # exponential pieces: neither a table nor polynomial pieces serve it
    return torch.where(z > 1, torch.exp(-(z.clamp_min(1) - 1)), z)


# Every way to an expectation: closed forms, tables, with a kink at zero, polynomial pieces, entry by entry.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "gelu": nn.GELU,
    "erf": lambda: Function(torch.erf),
    "sin": lambda: Function(torch.sin),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "hardtanh": nn.Hardtanh,
    "hardswish": nn.Hardswish,
    "kinked": lambda: ntkit.Elementwise(_kinked, kinks=(1.0,)),
}


DEEP = ("relu", "tanh", "elu", "hardtanh", "kinked")  # one for each way has a second hidden layer


def _difference(f: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> Tensor:
    h = 2e-3 * along
    return (45 * (f(at + h) - f(at - h)) - 9 * (f(at + 2 * h) - f(at - 2 * h)) + f(at + 3 * h) - f(at - 3 * h)) / 0.12


def _modes(
    f: Callable[[Tensor], Tensor], at: Tensor, along: Tensor, transforms: bool
) -> dict[str, tuple[Tensor, bool]]:
    """Derivatives along a direction, and whether of the sum of all entries."""
    leaf = at.clone().requires_grad_()
    found = {"reverse": ((torch.autograd.grad(f(leaf).sum(), leaf)[0] * along).sum(), True)}
    with forward_ad.dual_level(), torch.no_grad():
        tangent = forward_ad.unpack_dual(f(forward_ad.make_dual(at, along))).tangent
    assert tangent is not None
    found["dual numbers"] = (tangent, False)
    if transforms:
        found["jvp"] = (torch.func.jvp(f, (at,), (along,))[1], False)
        found["grad"] = ((torch.func.grad(lambda t: f(t).sum())(at) * along).sum(), True)
        found["jacfwd"] = ((torch.func.jacfwd(f)(at) * along).sum((-2, -1)), False)
    return found


def _kernels(limit: ntkit.results.InfiniteWidth, kind: str, x: Tensor) -> Tensor:
    """Give one kernel, or the two computed together, shape (kinds, n1, n2)."""
    return torch.stack(limit.both(x, X2)) if kind == "both" else getattr(limit, kind)(x, X2)[None]


# The two kernels together, and one alone for each way to an expectation.
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "both") for name in ACTIVATIONS), ("relu", "ntk"), ("tanh", "ntk"), ("relu", "nngp"), ("tanh", "nngp"),
     *(pytest.param(name, "nngp", marks=pytest.mark.slow) for name in ("elu", "hardtanh", "kinked"))],
)  # fmt: skip
def test_every_mode_of_differentiation(name: str, kind: str) -> None:
    phi = ACTIVATIONS[name]()
    hidden = (nn.Linear(5, 5), phi) if name in DEEP else ()
    net = nn.Sequential(nn.Linear(4, 5), phi, *hidden, nn.Linear(5, 1))
    limit = ntkit.infinite_width(net, w_std=1.3, b_std=0.2)

    def in_gain(w: Tensor) -> Tensor:
        return _kernels(ntkit.infinite_width(net, w_std=w, b_std=0.2, check=False), kind, X1)

    def in_inputs(x: Tensor) -> Tensor:  # "auto": the native engine gives first derivatives in reverse mode only
        return _kernels(limit, kind, x)

    gain = torch.tensor(1.3, dtype=torch.float64)
    for f, at, along, transforms in ((in_gain, gain, torch.ones_like(gain), False), (in_inputs, X1, ALONG, True)):
        exact = _difference(f, at, along)
        for mode, (found, summed) in _modes(f, at, along, transforms).items():
            size = exact.abs().amax((1, 2), keepdim=True)  # of each kernel
            error = (found - exact.sum()).abs() / size.sum() if summed else ((found - exact).abs() / size).max()
            assert error < 1e-8, (mode, float(error))


def test_transform_in_a_gain_is_refused() -> None:
    net = mlp(4, 5, 1, activation=nn.Tanh)
    w = torch.tensor(1.3, dtype=torch.float64)
    with pytest.raises(InputError, match=r"w_std is differentiated by a transform of torch\.func"):
        torch.func.jvp(lambda w: ntkit.infinite_width(net, w_std=w).ntk(X1), (w,), (w,))


def test_program_of_a_transform_serves_later() -> None:
    """Tables and programs made while a transform runs are ordinary constants."""
    net = nn.Sequential(nn.Linear(4, 5), ntkit.Elementwise(lambda z: torch.tanh(1.01 * z)), nn.Linear(5, 1))
    limit = ntkit.infinite_width(net)
    torch.func.grad(lambda x: limit.ntk(x, X2).sum())(X1)
    torch.testing.assert_close(
        limit.ntk(X1, X2, engine="reference"), ntkit.infinite_width(net).ntk(X1, X2, engine="reference"), rtol=0, atol=0
    )
