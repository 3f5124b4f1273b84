"""A network's weights at any training time, integrated with a tangent kernel that is refreshed at given times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from ntkit._src.common import (
    Loss,
    LossFunction,
    Progress,
    block_rows,
    check_gram_memory,
    check_steps,
    check_times,
    copy_module,
    find_loss,
    measuring,
    read_output_targets,
    row_blocks,
    shown,
)
from ntkit._src.dynamics import Descent, Integrator, KernelTraining, SquaredError, descend, integrate_outputs
from ntkit._src.kernels import empirical
from ntkit._src.kernels.finite_network import Network
from ntkit.errors import InputError, InputTypeError

__all__ = ["Integration", "Outputs", "integrate", "integrated_residuals", "move", "outputs_of", "transposed_product"]

Outputs = Literal["coupled", "separate"]
"""Whether the kernel couples the outputs of a network, as it does at finite width."""


@dataclass(frozen=True, eq=False)
class Integration:
    """A network with integrated weights.

    Attributes
    ----------
    module
        A copy of the module with the weights theta_t.
    outputs
        Predictions of the linearised network of the last segment on the training points, shape (n, ...).
    refreshes
        Number of times the kernel was computed.
    status
        What was done, including for a singular kernel.
    """

    module: nn.Module
    outputs: Tensor
    refreshes: int
    status: str


def integrate(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    t: float = math.inf,
    loss: str | LossFunction = "mse",
    refresh: Sequence[float] = (),
    *,
    descent: Descent | None = None,
    outputs: Outputs = "coupled",
    accuracy: Integrator | None = None,
    progress: Progress | None = None,
) -> Integration:
    r"""Return the weights of a network at time t, with its tangent kernel held constant between the times of ``refresh``.

    With Z the derivatives of the n training outputs with respect to the weights, :math:`H = Z^T Z` and the outputs u,

    .. math:: \theta_t = \theta_0 + Z \int_0^t -\frac{\partial L}{\partial u_s}\, ds
              = \theta_0 + Z H^{-1} \left( I - e^{-H t} \right) (y - u_0) \quad \text{for squares}

    (Golikov et al. 2022, eqs. 101-105; their (105) writes s for t in the exponent). H comes from the empirical kernel and the
    product with Z is one vector-Jacobian product, so Z is never formed. Without ``refresh`` this is the training of the
    linearised network; refreshed after every step of a ``descent`` it is gradient descent.

    Parameters
    ----------
    module
        The module, which is copied, not changed; in evaluation mode if it has dropout or batch norms.
    x : Tensor of shape (n, ...)
        Training inputs.
    y : Tensor
        Targets of the shape of the outputs; for cross-entropy also classes, integers of shape (n,).
    t : float
        The time, of gradient flow of the loss summed over the points; with a ``descent`` the number of steps. Infinity only for
        squares. Default infinity.
    loss : {"mse", "cross_entropy", "binary_cross_entropy"} or callable
        As in :class:`ntkit.GradientFlow`. Default ``"mse"``, half the sum of squares.
    refresh : sequence of float
        Increasing times between 0 and t at which outputs and kernel are recomputed from the current weights. Default none.
    descent : Descent, optional
        Gradient descent instead of gradient flow. Default None.
    outputs : {"coupled", "separate"}
        ``"coupled"``: the kernel of all n k outputs, exact. ``"separate"``: every output moves by the n x n kernel averaged over
        outputs (Yue et al. 2021), as in the limit of infinite width: k^2 times less memory. Default ``"coupled"``.
    accuracy : Integrator, optional
        Method and tolerances of the ODE integrator for losses without closed form. Default that of :class:`ntkit.GradientFlow`.
    progress : callable, optional
        Called with the number of segments done and their total.

    Returns
    -------
    Integration

    Raises
    ------
    InputError
        For times that are not increasing, an unstable learning rate, and modules without a kernel.
    MemoryLimitError
        If the kernel does not fit into memory.

    See Also
    --------
    ntkit.GradientFlow : only the outputs, for any kernel.
    ntkit.linearize : the network whose training this is without ``refresh``.
    ntkit.applications.FederatedNTK : the same with the data on several workers.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> from ntkit.applications import integrate
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(2, 256), nn.Tanh(), nn.Linear(256, 1)).double()
    >>> x = torch.randn(6, 2, dtype=torch.float64)
    >>> y = torch.sin(x.sum(1, keepdim=True))
    >>> once, often = integrate(net, x, y), integrate(net, x, y, t=100.0, refresh=[1.0, 5.0, 20.0])
    >>> errors = [float((found.module(x).detach() - y).abs().max()) for found in (once, often)]
    >>> errors[1] < errors[0]
    True
    """
    found = find_loss(loss)
    times = _segments(t, refresh, descent, found)
    if outputs not in ("coupled", "separate"):
        raise InputError(f'outputs must be "coupled" or "separate". Got {outputs!r}.')
    current = copy_module(module)
    Network(current, "full").check(x, None, trained=True)
    status, predicted = "No time passed.", outputs_of(current, x)
    targets = read_output_targets(found, y, predicted)
    for number, length in enumerate(times):
        start = outputs_of(current, x)
        weights, moved, status = integrated_residuals(
            tangent_gram(current, x, start, outputs), start, targets, [length], found, descent, accuracy
        )
        move(current, transposed_product(current, x, weights[0]))
        predicted = start + moved[0]
        if progress is not None:
            progress(number + 1, len(times))
    return Integration(current, predicted, len(times), status)


def tangent_gram(module: nn.Module, x: Tensor, start: Tensor, outputs: Outputs) -> Tensor:
    """Return the kernel of the training points: (n k, n k) for coupled outputs, otherwise (n, n)."""
    rows = start.numel() if outputs == "coupled" else len(start)
    try:
        check_gram_memory(rows, rows, start.dtype, start.device, matrices=4, what="the tangent kernel")
    except MemoryError as error:
        if outputs == "separate":
            raise
        raise type(error)(f'{error} Or write outputs="separate": n x n instead of n k x n k.') from None
    return empirical(module, output="full" if outputs == "coupled" else "trace").ntk(x)


def integrated_residuals(
    gram: Tensor,
    start: Tensor,
    targets: Tensor,
    times: Sequence[float],
    loss: Loss,
    descent: Descent | None,
    accuracy: Integrator | None = None,
) -> tuple[Tensor, Tensor, str]:
    """Return the integrals of -dL/du and the movement of the outputs, both (m, n, ...) for m times, and a status.

    Parameters
    ----------
    gram
        (n k, n k) for coupled outputs or (n, n), shared by the outputs.
    start, targets
        The initial outputs and their targets, shape (n, ...); for a user's loss, the targets in its own form.
    times
        Times, or steps with a descent.
    """
    coupled = len(gram) != len(start)
    shape = (-1, 1) if coupled else (len(start), -1)
    begin = start.detach().reshape(shape)
    if loss.closed_form:
        squared = SquaredError(gram, targets.reshape(shape) - begin, 0.0, owned=False)
        weights = squared.weights(list(times), descent)
        status = squared.status
    else:
        problem = KernelTraining(gram, begin, targets, _reshaped(loss, start.shape), 0.0)
        if descent is None:
            found, _ = integrate_outputs(problem, list(times), accuracy or Integrator())
            weights = torch.stack([found[one] for one in times])
        else:
            steps, _ = descend(problem, [int(one) for one in times], descent)
            weights = torch.stack([steps[int(one)] for one in times])
        status = f"{loss.name} has no closed form: its residuals were integrated."
    moved = torch.stack([gram @ one for one in weights])
    every = (len(times), *start.shape)
    return weights.reshape(every), moved.reshape(every), status


def outputs_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs, shape (n, ...), a block of rows at a time."""
    with torch.no_grad(), measuring(module):
        return torch.cat([module(x[rows]) for rows in _blocks(x)])


def transposed_product(module: nn.Module, x: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Return Z weights by trained parameter, for weights shaped like the outputs: vector-Jacobian products of blocks of rows."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    total = {name: torch.zeros_like(parameter) for name, parameter in trained.items()}
    with measuring(module):
        for rows in _blocks(x):
            with torch.enable_grad():
                values = module(x[rows])
                parts = torch.autograd.grad(values, list(trained.values()), weights[rows].to(values), allow_unused=True)
            for name, part in zip(trained, parts, strict=True):
                if part is not None:
                    total[name] += part
    return total


def move(module: nn.Module, change: dict[str, Tensor]) -> None:
    """Add to the trained parameters, in place."""
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for name, part in change.items():
            parameters[name].add_(part)


def _blocks(x: Tensor) -> list[slice]:
    # An input and its activations, whose size is unknown here: allow a few dozen times the size of the input.
    return list(row_blocks(len(x), block_rows(32 * max(x[0].numel(), 1), x.element_size())))


def _reshaped(loss: Loss, shape: torch.Size) -> Loss:
    """Pass outputs to a loss in their own shape if the problem holds them flat."""
    return Loss(
        loss.name,
        lambda f, y: loss.value(f.reshape(shape), y),
        lambda f, y: loss.slope(f.reshape(shape), y).reshape(f.shape),
        loss.curvature,
    )


def _segments(t: float, refresh: Sequence[float], descent: Descent | None, loss: Loss) -> list[float]:
    """Return the durations between refreshes."""
    if not isinstance(descent, Descent | None):
        raise InputTypeError(f"descent must be a Descent. Got {descent!r}: write Descent(learning_rate=0.1).")
    times, single = check_times(t)
    if not single:
        raise InputError(
            f"t must be one time. Got {shown(t)}: call integrate for each, or use GradientFlow for the outputs."
        )
    stops = check_times(refresh, "refresh")[0] if len(refresh) else []
    if stops != sorted(set(stops)) or any(not 0 < stop < times[0] for stop in stops):
        raise InputError(f"refresh must be increasing times after 0 and before t = {times[0]:g}. Got {list(refresh)}.")
    if descent is not None:
        check_steps([one for one in (*stops, *times) if math.isfinite(one)] or [0])
    if math.isinf(times[0]) and not loss.closed_form:
        raise InputError(f"t must be finite for {loss.name}, whose training has no end in closed form. Got infinity.")
    ends = [0.0, *stops, times[0]]
    return [after - before for before, after in pairwise(ends)] if times[0] > 0 else []
