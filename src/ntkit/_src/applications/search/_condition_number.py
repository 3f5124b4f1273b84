"""The condition number of the tangent kernel of an untrained network."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ntkit._src.common import check_batches, check_choice, check_generator, check_integer, check_module, copy_module
from ntkit._src.kernels import empirical
from ntkit.errors import InputError


@dataclass(frozen=True)
class ConditionNumber:
    """Condition numbers of several draws.

    Attributes
    ----------
    value
        Their median.
    draws
        One per draw; infinite if the smallest eigenvalue is below rounding.
    largest, smallest
        The extreme eigenvalues of every draw.
    status
        One sentence: how many draws are singular to rounding.
    """

    value: float
    draws: tuple[float, ...]
    largest: tuple[float, ...]
    smallest: tuple[float, ...]
    status: str


def condition_number(
    module: nn.Module,
    x: Tensor,
    repeats: int = 3,
    *,
    parameters: Literal["weights", "all"] = "weights",
    generator: torch.Generator | None = None,
) -> ConditionNumber:
    r"""Return the condition number :math:`\lambda_{max} / \lambda_{min}` of the empirical tangent kernel of random networks.

    TE-NAS (Chen et al. 2021) ranks architectures by it: gradient descent learns the slowest direction at a rate of at most
    :math:`2 \lambda_{min} / \lambda_{max}` per step (Golikov et al. 2022, section 6.1.2, whose condition number is the
    inverse). The kernel is that of the sum of the logits, as there. It is computed in float64.

    Parameters
    ----------
    module
        Copied. The copy is in evaluation mode: batch norms, whose statistics are reset, only shift and scale.
    x : Tensor of shape (n, ...)
        A few dozen inputs; at least two.
    repeats : int
        Number of draws of the weights: Kaiming normal initialisation by fan-in, biases zero. Default 3.
    parameters : {"weights", "all"}
        Whose derivatives count: parameters with ``weight`` in their name, as in TE-NAS, or all. Default ``"weights"``.
    generator : torch.Generator, optional
        Generator of the draws, on the CPU. Default None: torch's global one.

    Returns
    -------
    ConditionNumber

    See Also
    --------
    ntkit.applications.search.kernel_score : accuracy of the kernel itself.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.applications.search import condition_number
    >>> net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    >>> x = torch.randn(10, 8, generator=torch.Generator().manual_seed(0))
    >>> found = condition_number(net, x, generator=torch.Generator().manual_seed(0))
    >>> len(found.draws), 1 < found.value < 1e4
    (3, True)
    >>> condition_number(net, x[[0, 0, 1]], generator=torch.Generator().manual_seed(0)).value
    inf
    """
    check_module(module)
    check_batches(x, None)
    check_generator(generator)
    if len(x) < 2:
        raise InputError("x must have at least two inputs: the condition number of one is 1.")
    check_integer("repeats", repeats, 1)
    check_choice("parameters", parameters, ("weights", "all"))
    own = copy_module(module).double().eval()
    if parameters == "weights":
        for name, parameter in own.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and "weight" in name)
    largest, smallest, draws = [], [], []
    for _ in range(repeats):
        draw_kaiming(own, generator)
        eigenvalues = torch.linalg.eigvalsh(empirical(own, output="sum").ntk(x.double()))
        low, high = float(eigenvalues[0]), float(eigenvalues[-1])
        rounding = 10 * len(x) * torch.finfo(torch.float64).eps * high
        smallest.append(low)
        largest.append(high)
        draws.append(high / low if low > rounding else math.inf)
    singular = sum(map(math.isinf, draws))
    status = (
        f"The smallest eigenvalue is below rounding in {singular} of {repeats} draws: the kernel is singular there."
        if singular
        else f"All {repeats} kernels are regular."
    )
    return ConditionNumber(statistics.median(draws), tuple(draws), tuple(largest), tuple(smallest), status)


def draw_kaiming(module: nn.Module, generator: torch.Generator | None = None) -> None:
    """Draw the weights of linear and convolutional layers afresh, in place: Kaiming's normal by fan-in, biases zero."""
    for layer in module.modules():
        if isinstance(layer, (nn.Linear, nn.modules.conv._ConvNd)):
            fresh = torch.empty(layer.weight.shape, dtype=layer.weight.dtype)  # on the CPU, where the generator is
            nn.init.kaiming_normal_(fresh, mode="fan_in", nonlinearity="relu", generator=generator)
            with torch.no_grad():
                layer.weight.copy_(fresh)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        elif isinstance(layer, (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)):
            layer.reset_parameters()
