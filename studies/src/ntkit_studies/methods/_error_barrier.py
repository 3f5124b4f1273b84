"""The error along the straight line between two trained networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ntkit.errors import InputError, InputTypeError
from ntkit.extending import check_integer, copy_module

from ._classes import check_classes, check_module, check_points, error_rate, outputs_of

__all__ = ["ErrorBarrier", "error_barrier"]


@dataclass(frozen=True, eq=False)
class ErrorBarrier:
    """The error on the line between two networks.

    Attributes
    ----------
    barrier
        The largest error minus the mean of the errors at the two ends.
    weights
        The weight of the second network, from 0 to 1, shape (points,).
    errors
        Shape (points,), float64.
    """

    barrier: float
    weights: Tensor
    errors: Tensor


def error_barrier(
    module_a: nn.Module,
    module_b: nn.Module,
    x: Tensor,
    y: Tensor,
    points: int = 21,
    *,
    error: Callable[[Tensor, Tensor], float] | None = None,
    x_train: Tensor | None = None,
) -> ErrorBarrier:
    r"""Return the error barrier between two networks of the same architecture on the line between their parameters.

    .. math:: \max_\alpha E\big((1 - \alpha) \theta_a + \alpha \theta_b\big) - \tfrac12 \big(E(\theta_a) + E(\theta_b)\big)

    over equally spaced :math:`\alpha` from 0 to 1. It is near zero for networks in the same valley (Fort et al. 2020 [1]_;
    Golikov et al. 2022, section 7).

    Parameters
    ----------
    module_a, module_b : nn.Module
        Two networks with the same parameters by name and shape. Not changed.
    x : Tensor of shape (n, ...)
        Points to evaluate on, usually the test set.
    y : Tensor of shape (n,)
        Classes 0, 1, ...; any two numbers for a module with one output, whose sign is the class.
    points : int
        Number of points on the line, including the ends; odd numbers include the middle. Default 21.
    error : callable, optional
        A function of outputs and y instead of the error rate, such as a loss. Default None.
    x_train : Tensor, optional
        Training points, for modules with batch norms: their statistics mean nothing between the networks and are recomputed
        from these at every point of the line, including the ends. Default None: such modules are refused.

    Returns
    -------
    ErrorBarrier

    Raises
    ------
    InputError
        For two architectures, buffers that differ, and batch norms without ``x_train``.

    See Also
    --------
    spawn_study : Barriers of networks that diverge at one epoch or another.

    References
    ----------
    .. [1] Fort et al., "Deep Learning versus Kernel Learning: an Empirical Study of Loss Landscape Geometry and the Time
       Evolution of the Neural Tangent Kernel", 2020.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> a, b = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(a.weight), nn.init.constant_(b.weight, -1.0)
    >>> x, y = torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1])
    >>> error_barrier(a, b, x, y, points=3).errors
    tensor([0.5000, 0.5000, 0.5000], dtype=torch.float64)
    """
    for module in (module_a, module_b):
        check_module(module)
    check_points("x", x)
    check_integer("points", points, 2)
    first, second = _parameters(module_a, module_b)
    norms = _check_buffers(module_a, module_b, x_train)
    targets = y if error is not None else check_classes("y", y, outputs_of(module_a, x))
    measure = error_rate if error is None else error
    net = copy_module(module_a)
    weights = torch.linspace(0.0, 1.0, points, dtype=torch.float64)
    errors = []
    for weight in weights.tolist():
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                parameter.copy_(torch.lerp(first[name], second[name], weight))
        if norms:
            assert x_train is not None
            _recompute(net, x_train)
        errors.append(float(measure(outputs_of(net, x), targets)))
    values = torch.tensor(errors, dtype=torch.float64)
    if not bool(torch.isfinite(values).all()):
        raise InputError(
            "the error must be finite along the line. Got NaN or infinite values: did the networks diverge?"
        )
    return ErrorBarrier(float(values.max() - (values[0] + values[-1]) / 2), weights, values)


def _parameters(module_a: nn.Module, module_b: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return both modules' parameters by name, or raise an error that says where they differ."""
    first, second = ({name: p.detach() for name, p in one.named_parameters()} for one in (module_a, module_b))
    odd = sorted(set(first) ^ set(second)) or [name for name in first if first[name].shape != second[name].shape]
    if odd or not first:
        raise InputError(
            f"the two modules must have the same parameters, by name and shape. They differ at {odd[:3]}."
            if odd
            else "the modules must have parameters to go from one to the other. They have none."
        )
    kinds = {(p.dtype, p.device) for p in (*first.values(), *second.values())}
    if len(kinds) > 1:
        raise InputTypeError(f"the two modules must have the same dtype and device. Got {sorted(map(str, kinds))}.")
    return first, second


def _check_buffers(module_a: nn.Module, module_b: nn.Module, x_train: Tensor | None) -> bool:
    """Return whether there are running statistics to recompute; refuse other buffers that differ."""
    running = [path for path, layer in module_a.named_modules() if _keeps_statistics(layer)]
    other = dict(module_b.named_buffers())
    for name, buffer in module_a.named_buffers():
        if name.rpartition(".")[0] in running:
            continue
        if name not in other or other[name].shape != buffer.shape or not torch.equal(other[name], buffer):
            raise InputError(
                f"the two modules must share their buffers: what is between them is not defined. They differ at {name!r}."
            )
    if running and x_train is None:
        raise InputError(
            f"the modules have batch norms ({running[0]!r} and {len(running) - 1} more), whose statistics mean nothing between "
            "the two networks. Pass x_train, on which they are computed anew along the line."
        )
    if running:
        assert x_train is not None
        check_points("x_train", x_train)
    return bool(running)


def _keeps_statistics(layer: nn.Module) -> bool:
    return isinstance(layer, _BatchNorm) and layer.track_running_stats


def _recompute(net: nn.Module, x_train: Tensor, batch_size: int = 512) -> None:
    """Set the running statistics of all batch norms to the mean over batches of the training points."""
    norms = [layer for layer in net.modules() if _keeps_statistics(layer)]
    kept = [layer.momentum for layer in norms]
    net.eval()
    for layer in norms:
        assert isinstance(layer, _BatchNorm)
        layer.reset_running_stats()
        layer.momentum = None  # the plain mean over batches
        layer.train()
    with torch.no_grad():
        for part in x_train.chunk(max(1, round(len(x_train) / batch_size))):
            net(part)
    net.eval()
    for layer, momentum in zip(norms, kept, strict=True):
        layer.momentum = momentum
