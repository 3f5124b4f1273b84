"""A network expanded around its parameters: linearised, or as a Taylor polynomial of any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import jvp

from ntkit._src.common import (
    Elementary,
    OwnParameters,
    call_with,
    check_integer,
    check_module,
    check_precision,
    copy_module,
    plain_attention,
)
from ntkit._src.kernels import check_modes
from ntkit.errors import InputError


class Taylor(nn.Module):
    """A module's Taylor polynomial in its parameters theta, around the buffers ``origin``, theta_0; see :func:`taylor`."""

    def __init__(self, module: nn.Module, order: int) -> None:
        super().__init__()
        self.module = copy_module(module)
        self.order = order
        self.names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
        self._guard: AbstractContextManager[Any] = OwnParameters(module)
        self.origin = nn.Module()
        parameters = dict(module.named_parameters())
        for number, name in enumerate(self.names):
            self.origin.register_buffer(str(number), parameters[name].detach().clone())

    def train(self, mode: bool = True) -> Self:
        """Set the flag of this module; the network inside stays in the mode in which it was expanded."""
        self.training = mode
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the polynomial at the current parameters."""
        parameters = dict(self.module.named_parameters())
        origin = {name: self.origin.get_buffer(str(number)) for number, name in enumerate(self.names)}
        # Parameters that were frozen after the expansion stay in place: their difference is zero.
        direction = {name: parameters[name] - origin[name] for name in self.names}
        values = _function(self.module, args, kwargs)
        # Fused attention has neither forward-mode nor second derivatives.
        with self._guard, plain_attention(), Elementary():
            terms = _derivatives(values, origin, direction, self.order)
        self._guard = nullcontext()  # once is enough
        total = terms[0]
        for power, term in enumerate(terms[1:], start=1):
            total = total + term / math.factorial(power)
        return total

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_guard": nullcontext()}  # the original is elsewhere

    def extra_repr(self) -> str:
        """Show the order."""
        return f"order={self.order}"


def taylor(module: nn.Module, order: int) -> nn.Module:
    r"""Expand a module around its present parameters: a module that is a polynomial in its parameters.

    .. math:: f_k(x; \theta) = \sum_{j=0}^{k} \frac{1}{j!} \frac{d^j}{ds^j} f(x; \theta_0 + s (\theta - \theta_0)) \Big|_{s=0}

    computed by nested forward-mode derivatives: no Jacobian and no tensor of higher order is formed; time and memory are those
    of about :math:`2^k` forward passes. With piecewise linear activations such as ReLU it is the polynomial of the piece that
    theta_0 is in: exact until a neuron crosses its kink, after which no higher order makes up for it.

    Order 1 is the network whose training the neural tangent kernel describes exactly; orders 2 and 3 are, for smooth
    activations, the finite-width corrections (Golikov et al. 2022, section 3).

    Parameters
    ----------
    module
        The module, which is copied; in evaluation mode if it has dropout or batch norms, in float32 or float64. Its output
        must be one tensor. Frozen parameters stay fixed.
    order
        The order k, at least 1.

    Returns
    -------
    nn.Module
        Its trained parameters are a copy of the module's (``"module."`` before each name), start at theta_0, and train with
        any optimiser. ``state_dict`` holds theta and theta_0.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> cube = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    >>> for layer in cube:
    ...     _ = nn.init.ones_(layer.weight)
    >>> expanded = ntkit.taylor(cube, 2)
    >>> for parameter in expanded.parameters():
    ...     _ = nn.init.constant_(parameter, 1.5)
    >>> expanded(torch.ones(1, 1)).item()  # 1 + 3 (0.5) + 3 (0.5)^2, of 1.5^3 = 3.375
    3.25
    """
    check_module(module)
    check_precision(module)
    check_integer("order", order, 1)
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InputError(
            "the module must have a parameter that requires gradients: there is nothing to expand in. "
            "Write module.requires_grad_()."
        )
    check_modes(module)
    return Taylor(module, order)


def linearize(module: nn.Module) -> nn.Module:
    r"""Linearise a module in its parameters, around their present values.

    .. math:: f_{lin}(x; \theta) = f(x; \theta_0) + J(x) (\theta - \theta_0), \qquad J = \partial f / \partial \theta\,(\theta_0)

    Its tangent kernel is constant, the empirical kernel of the module, so gradient flow on it is the kernel gradient flow
    (Golikov et al. 2022, eq. 7). It is :func:`taylor` of order 1.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    >>> linear, x = ntkit.linearize(net), torch.ones(2, 3)
    >>> torch.allclose(linear(x), net(x))
    True
    >>> optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    >>> linear(x).square().sum().backward()
    >>> optimizer.step()
    """
    return taylor(module, 1)


def _function(module: nn.Module, args: Any, kwargs: Any) -> Callable[[dict[str, Tensor]], Tensor]:
    def values(parameters: dict[str, Tensor]) -> Tensor:
        output = call_with(module, parameters, args, kwargs)
        if not isinstance(output, Tensor):
            raise InputError(
                f"the module's output must be one tensor. Got {type(output).__name__}. "
                "Wrap the module in one that returns the output that you want."
            )
        return output

    return values


def _derivatives(
    values: Callable[[dict[str, Tensor]], Tensor], origin: dict[str, Tensor], direction: dict[str, Tensor], order: int
) -> tuple[Tensor, ...]:
    """Return f and its derivatives along a direction up to an order."""
    if order == 1:
        return tuple(jvp(values, (origin,), (direction,)))

    def along(s: Tensor) -> tuple[Tensor, ...]:
        return (values({name: origin[name] + s * direction[name] for name in origin}),)

    derivatives: Callable[[Tensor], tuple[Tensor, ...]] = along
    for _ in range(order):
        derivatives = _with_next(derivatives)
    some = next(iter(origin.values()))
    return derivatives(torch.zeros((), dtype=some.dtype, device=some.device))


def _with_next(derivatives: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def more(s: Tensor) -> tuple[Tensor, ...]:
        pair = jvp(derivatives, (s,), (torch.ones_like(s),))
        return (*pair[0], pair[1][-1])

    return more
