"""Which operations are found not to be smooth, however they are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.cases import normal
from torch import Tensor, nn

from ntkit._src.common import find_kinks

SHAPE = (2, 3, 4, 4)


def points(shape: tuple[int, ...] = SHAPE) -> Tensor:
    return normal(*shape).requires_grad_()


def assigned(z: Tensor) -> Tensor:
    out = z * 1
    out[z < 0] = 0
    return out


class Scripted(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return torch.relu(z)


KINKED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "module": (nn.ReLU(), "relu"),
    "function": (F.relu, "relu"),
    "in place": (lambda z: (z * 1).relu_(), "relu"),
    "scripted": (lambda z: torch.jit.trace(Scripted(), z)(z), "relu"),
    "recurrent": (lambda z: nn.RNN(4, 3, nonlinearity="relu").double()(z[0])[0], "relu"),
    "relu6": (nn.ReLU6(), "hardtanh"),
    "leaky": (nn.LeakyReLU(), "leaky_relu"),
    "prelu": (nn.PReLU(dtype=torch.float64), "prelu"),
    "rrelu": (nn.RReLU().eval(), "rrelu"),
    "threshold": (nn.Threshold(0.1, 0.2), "threshold"),
    "hardtanh": (nn.Hardtanh(), "hardtanh"),
    "hardsigmoid": (nn.Hardsigmoid(), "hardsigmoid"),
    "hardswish": (nn.Hardswish(), "hardswish"),
    "hardshrink": (nn.Hardshrink(), "hardshrink"),
    "softshrink": (nn.Softshrink(), "softshrink"),
    "abs": (torch.abs, "abs"),
    "clamp": (lambda z: z.clamp(-1, 1), "clamp"),
    "clamp below": (lambda z: z.clamp(min=0), "clamp"),
    "clamp near": (lambda z: z.square().clamp_min(0.1), "clamp_min"),
    "clamp by tensor": (lambda z: z.clamp(min=torch.zeros(())), "clamp"),
    "maximum": (lambda z: torch.maximum(z, 0 * z), "maximum"),
    "max": (lambda z: z.max(1).values, "max"),
    "amin": (lambda z: z.amin(1), "amin"),
    "max pool": (nn.MaxPool2d(2), "max_pool2d"),
    "adaptive max pool": (nn.AdaptiveMaxPool2d(1), "adaptive_max_pool2d"),
    "sort": (lambda z: z.sort(1).values, "sort"),
    "topk": (lambda z: z.topk(2, 1).values, "topk"),
    "median": (lambda z: z.median(1).values, "median"),
    "round": (lambda z: z + z.round(), "round"),
    "floor division": (lambda z: torch.div(z, 2.0, rounding_mode="floor"), "div"),
    "L1 norm": (lambda z: z.norm(p=1), "linalg_vector_norm"),
    "largest entry": (lambda z: torch.linalg.vector_norm(z, float("inf"), dim=1), "linalg_vector_norm"),
    "scatter": (lambda z: z.new_zeros(2).scatter_reduce(0, torch.tensor([0, 1, 1, 0]), z[0, 0, 0], "amax"), "scatter_reduce"),
    "selu": (nn.SELU(), "elu"),
    "elu": (nn.ELU(2.0), "elu"),
    "where": (lambda z: torch.where(z > 0, z, 0.1 * z), "gt"),
    "mask": (lambda z: z * (z > 0), "gt"),
    "mask as numbers": (lambda z: z * (z >= 0).double(), "ge"),
    "detached mask": (lambda z: z * (z.detach() > 0), "gt"),
    "mask of data": (lambda z: z * (z.data < 0), "lt"),
    "masked fill": (lambda z: z.masked_fill(z < 0, 0.0), "lt"),
    "combined masks": (lambda z: z * ((z > 0) & (z < 1)), "gt"),
    "assignment": (assigned, "lt"),
    "gathered": (lambda z: z.gather(1, z.argmax(1, keepdim=True)), "argmax"),
}  # fmt: skip


@pytest.mark.parametrize("name", KINKED)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_kinks_of_the_slope(name: str) -> None:
    function, expected = KINKED[name]
    found = find_kinks(lambda: function(points()))
    assert found and all(kink.order == 1 for kink in found)
    assert expected in [kink.name for kink in found]


@pytest.mark.parametrize("function", [nn.ELU(), nn.CELU(), nn.CELU(2.0), lambda z: F.huber_loss(z, 0 * z)])
def test_kinks_of_the_curvature(function: Callable[[Tensor], Tensor]) -> None:
    assert [kink.order for kink in find_kinks(lambda: function(points()))] == [2]


SMOOTH: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        type(layer).__name__: layer
        for layer in (nn.GELU(), nn.SiLU(), nn.Mish(), nn.Softplus(), nn.Tanh(), nn.Sigmoid(), nn.LogSigmoid(),
                      nn.Softmax(1), nn.LayerNorm(4, dtype=torch.float64), nn.AvgPool2d(2), nn.GLU(), nn.Tanhshrink())
    },
    "attention": lambda z: F.scaled_dot_product_attention(z, z, z),
    "causal attention": lambda z: F.scaled_dot_product_attention(z, z, z, is_causal=True),
    "norm": lambda z: z.norm(dim=1),
    "unit vectors": lambda z: F.normalize(z, dim=1),
    "guarded division": lambda z: z / z.square().sum(1, keepdim=True).clamp(min=1e-12),
    "logsumexp": lambda z: z.logsumexp(1),
    "mask of a shape": lambda z: z.masked_fill(torch.ones_like(z, dtype=torch.bool).tril(), 0.0),
    "checked": lambda z: z.sin() if bool((z.abs() < 100).all()) else z,
    "stop gradient": lambda z: z * z.detach(),
}  # fmt: skip


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth(name: str) -> None:
    assert find_kinks(lambda: SMOOTH[name](points())) == []


def test_what_does_not_depend_on_parameters_does_not_count() -> None:
    x, weight = points().detach(), points((4, 4))
    assert find_kinks(lambda: (x.relu() * (x > 0) + x.amax(1, keepdim=True)) @ weight) == []
    assert [kink.name for kink in find_kinks(lambda: (x @ weight).abs().sin())] == ["abs"]
    frozen = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).double().requires_grad_(False)
    assert find_kinks(lambda: frozen(x) @ weight) == []


def test_leaves_and_modes() -> None:
    z = points()
    with torch.no_grad():
        assert [kink.name for kink in find_kinks(lambda: z.relu())] == ["relu"]
    assert find_kinks(lambda: z) == []
    assert z.grad is None
