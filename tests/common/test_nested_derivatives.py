"""Operations written out have the values of torch's own, and derivatives of any order along a line."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.cases import normal
from torch import Tensor
from torch.func import grad, jvp
from torch.nn import functional as F

from ntkit._src.common import Elementary

W, B = 1 + normal(6, seed=1) / 4, normal(6, seed=2)
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "layer_norm over two axes": lambda x: F.layer_norm(x, (6, 4), normal(6, 4, seed=3), normal(6, 4, seed=4), 0.1),
    "torch.layer_norm": lambda x: torch.layer_norm(x, (4,), W[:4], B[:4], 0.2),
    "group_norm": lambda x: F.group_norm(x, 3, W, B, 0.1),
    "torch.group_norm": lambda x: torch.group_norm(x, 2, None, B),
    "instance_norm": lambda x: F.instance_norm(x, weight=W, bias=B, eps=0.3),
    "instance_norm by running values": lambda x: F.instance_norm(
        x, running_mean=B, running_var=W.abs(), use_input_stats=False
    ),
    "glu": F.glu,
    "glu along an axis": lambda x: F.glu(x, 1),
    "weight_norm": lambda x: torch._weight_norm(x[0], normal(6, 1, seed=5), 0),
    "weight_norm of the other axis": lambda x: torch._weight_norm(x[0], normal(1, 4, seed=5), 1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_values(name: str) -> None:
    x = normal(2, 6, 4)
    with Elementary():
        found = OPERATIONS[name](x)
    torch.testing.assert_close(found, OPERATIONS[name](x), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", OPERATIONS)
def test_third_derivative_along_a_line(name: str) -> None:
    """Three derivatives forwards equal finite differences of torch's own values."""
    x, v, mix = normal(2, 6, 4), normal(2, 6, 4, seed=7) / 4, normal(4096, seed=8)

    def along(t: Tensor) -> Tensor:
        y = OPERATIONS[name](x + t * v)
        return (y * mix[: y.numel()].view(y.shape)).sum()

    def forwards(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda t: jvp(function, (t,), (torch.ones_like(t),))[1]

    zero = torch.zeros((), dtype=torch.float64)
    with Elementary():
        third = forwards(forwards(forwards(along)))(zero)
        backwards = grad(forwards(along))(zero)
    step = 0.01
    # Central differences of sixth and eighth order.
    values = [along(zero + k * step) for k in range(-4, 5)]
    weights = torch.tensor([-7, 72, -338, 488, 0, -488, 338, -72, 7], dtype=torch.float64) / 240
    torch.testing.assert_close(third, torch.stack(values) @ weights / step**3, rtol=1e-5, atol=1e-5)
    weights = torch.tensor([-9, 128, -1008, 8064, -14350, 8064, -1008, 128, -9], dtype=torch.float64) / 5040
    torch.testing.assert_close(backwards, torch.stack(values) @ weights / step**2, rtol=1e-7, atol=1e-7)
