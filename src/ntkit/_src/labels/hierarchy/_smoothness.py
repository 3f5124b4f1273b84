"""Which kernels of the tangent hierarchy a network is smooth enough for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ntkit._src.common import Kink, find_kinks
from ntkit._src.kernels import Network
from ntkit.errors import InputError

__all__ = ["check_smooth", "check_smooth_function", "network_kinks"]

# Random points of an elementwise function: wide enough that no clipping of interest is beyond them.
_POINTS = torch.linspace(-4, 4, 65, dtype=torch.float64)


def network_kinks(network: Network, x: Tensor) -> list[Kink]:
    """Return the operations of a network that are not smooth in its trained parameters, run on two of the inputs x."""
    parameters = {name: value.detach().clone().requires_grad_() for name, value in network.trained.items()}
    return find_kinks(lambda: network(x[:2], parameters))


def check_smooth(kinks: Sequence[Kink], order: int) -> None:
    r"""Refuse a network whose kernel of an order has delta functions.

    :math:`K^{(r)}` has derivatives of f up to the order r - 1. Where the k-th derivative of an activation jumps, the next
    is a delta function, which autograd takes for zero. In the mean over networks, or in the motion of the kernel over time,
    it counts as much as the rest: it is how the kernel changes when a neuron crosses its kink. So jumps of the slope (k = 1)
    are missing from K3 on, and jumps of the curvature (k = 2) from K4 on.

    Raises
    ------
    InputError
        If there is such an operation.
    """
    slopes, curves = ([kink.name for kink in kinks if kink.order == k] for k in (1, 2))
    curves = curves if order >= 4 else []
    if order < 3 or not slopes + curves:
        return
    parts = [
        f"{', '.join(names)}, whose {what} jumps (K{first} and higher kernels then have delta functions)"
        for names, what, first in ((slopes, "value or slope", 3), (curves, "curvature", 4))
        if names
    ]
    raise InputError(
        f"the tangent hierarchy up to K{order} needs a network whose derivatives up to the order {order - 2} are continuous. "
        f"Got {'; and '.join(parts)}. Derivatives by autograd leave the delta functions out: for two layers of ReLU that "
        "changes the label-aware part by a fifth. Write nn.GELU, nn.SiLU, nn.Softplus or nn.Tanh instead, or for two layers of "
        'ReLU ntkit.TangentHierarchy("relu"), which adds them.'
    )


def check_smooth_function(function: Callable[[Tensor], Tensor]) -> None:
    """Refuse an elementwise activation with delta functions in its K4.

    Raises
    ------
    InputError
        If the function or one of its first two derivatives jumps.
    """
    z = _POINTS.clone().requires_grad_()
    kinks = find_kinks(lambda: function(z))
    if kinks:
        names = ", ".join(kink.name for kink in kinks)
        raise InputError(
            f"activation must be a function with two continuous derivatives. Got {names}, with a jump of the value, slope or "
            'curvature: its K4 has delta functions. Write activation="relu" for the ReLU, or a smooth function such as "gelu".'
        )
