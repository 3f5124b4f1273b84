"""What the tests of expectations share: functions without a closed form, numbers, and the checks at singular inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ntkit._src.program import Activation, AnyFunction
from ntkit._src.rules.expectations import dual


def quadrature(label: str, function: Callable[[Tensor], Tensor], kinks: tuple[float, ...] = ()) -> AnyFunction:
    return AnyFunction(function, kinks=kinks, label=label)


def f64(*values: Any) -> tuple[Tensor, ...]:
    return tuple(torch.tensor(v, dtype=torch.float64) for v in values)


def dual_at_singular_inputs(phi: Activation) -> tuple[Tensor, Tensor]:
    """Check that all gradients are finite where inputs coincide, correlations round above 1, and variances are zero.

    Gives the dual at five such pairs, and the variance of the second input.
    """
    k, q1, q2 = f64([2.0, -2.0, 2 + 1e-15, 0.0, 0.0], [2.0, 2, 2, 0, 0], [2.0, 2, 2, 3, 0])
    for t in (k, q1, q2):
        t.requires_grad_()
    value, slope = dual(phi, k, q1, q2, tangent=True)
    for output in (value, slope):
        assert torch.isfinite(output).all()
        for gradient in torch.autograd.grad(output.sum(), (k, q1, q2), retain_graph=True):
            assert torch.isfinite(gradient).all()
    torch.testing.assert_close(torch.autograd.grad(value.sum(), k)[0], slope.detach())
    return value, q2
