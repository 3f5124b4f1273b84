"""Which tensors may be asked for derivatives, and constants computed while they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from ntkit._src.common import as_constant, constant, differentiated, transformed, without_derivatives

X = torch.arange(3.0)


def _seen(how: str) -> list[bool]:
    """What ``differentiated`` says inside a way of differentiating, of the argument, of its detached self, of a constant."""
    seen: list[bool] = []

    def f(x: Tensor) -> Tensor:
        seen.extend([differentiated(x), transformed(x)])
        return (x * x).sum()

    ways: dict[str, Callable[[], object]] = {
        "plain": lambda: f(X),
        "reverse": lambda: f(X.clone().requires_grad_()),
        "reverse, off": lambda: torch.no_grad()(f)(X.clone().requires_grad_()),
        "jvp": lambda: torch.func.jvp(f, (X,), (X,)),
        "grad": lambda: torch.func.grad(f)(X),
        "jacfwd": lambda: torch.func.jacfwd(f)(X),
    }
    if how == "dual":
        with forward_ad.dual_level(), torch.no_grad():
            f(forward_ad.make_dual(X, X))
    else:
        ways[how]()
    return seen


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("plain", [False, False]),
        ("reverse", [True, False]),
        ("reverse, off", [False, False]),
        ("dual", [True, False]),
        ("jvp", [True, True]),
        ("grad", [True, True]),
        ("jacfwd", [True, True]),
    ],
)
def test_who_differentiates(how: str, expected: list[bool]) -> None:
    assert _seen(how) == expected


def test_constants_survive_a_transform() -> None:
    kept: list[Tensor] = []

    @constant
    def build(n: int) -> Tensor:
        return torch.arange(n) + 1.0

    def f(x: Tensor) -> Tensor:
        kept.extend([build(3), as_constant(x * 2)])
        with without_derivatives(), torch.enable_grad():  # autograd works as outside
            z = kept[0].clone().requires_grad_()
            kept.append(torch.autograd.grad((z * z).sum(), z)[0])
        return x * kept[0]

    value, tangent = torch.func.jvp(f, (X,), (torch.ones(3),))
    assert not any(transformed(t) or differentiated(t) for t in kept)
    assert [t.tolist() for t in kept] == [[1, 2, 3], [0, 2, 4], [2, 4, 6]]
    assert (value.tolist(), tangent.tolist()) == ([0, 2, 6], [1, 2, 3])
