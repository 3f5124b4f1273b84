"""The nearest module that has an infinite-width limit, and the changes that lead to it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ntkit.errors import InputError, InputTypeError, Problem, UnsupportedLayerError

from ._adapt_graph import rewrite_graph
from ._adapt_layers import Change, Norm, replace_layers
from ._gains import GainRule
from ._trace import Tracer

__all__ = ["Adapted", "Change", "adapt"]


@dataclass(frozen=True, eq=False)
class Adapted:
    """A module changed so that it has an infinite-width limit; see :func:`adapt`. ``print`` it for the list of changes.

    Attributes
    ----------
    module
        The changed copy. Remaining parameters keep their names and values.
    changes
        The changes, in the order of the module's layers; empty if none were needed.
    obstacles
        What still prevents a limit; empty if ``ntkit.infinite_width(module)`` accepts the module.
    """

    module: nn.Module
    changes: tuple[Change, ...]
    obstacles: tuple[Problem, ...]

    def __str__(self) -> str:
        count = f"{len(self.changes)} change" + ("" if len(self.changes) == 1 else "s")
        if not self.obstacles:
            verdict = "it has an infinite-width limit"
        else:
            verdict = f"{len(self.obstacles)} place{'' if len(self.obstacles) == 1 else 's'} without a limit left"
        lines = [f"{count}; {verdict}", *(f"  {change}" for change in self.changes)]
        return "\n".join(lines + [f"  left: {problem}" for problem in self.obstacles])


def adapt(module: nn.Module, input_shape: Sequence[int] | None = None, *, norm: Norm = "none") -> Adapted:
    """Replace the parts of a module that have no infinite-width limit by their nearest relatives that have one.

    - Max pooling becomes average pooling over the same windows.
    - Batch norm is left out, or becomes a norm over channels and positions (``norm``).
    - A residual block that activates its sum becomes a pre-activation block (He et al. 2016, "Identity mappings in deep
      residual networks"): the shortcut carries the sum itself, the branch reads its activation. Sums are found in the
      graph of the forward pass, whatever the blocks are called.
    - Dropout and stochastic depth are off, as in evaluation. A trained factor per channel (layer scale) is left out.

    Everything else stays, including depthwise convolutions on hidden channels. What has neither a limit nor a near relative
    (instance norm; softmax attention without ``attention_samples``) is listed in ``obstacles`` with the reason.
    The changed module is a different network: its kernel is that of a similar architecture, not of the original module.

    Parameters
    ----------
    module
        The module, which is copied, not changed.
    input_shape
        Shape of one input, without the batch. Needed if the limit can only be checked for inputs of that shape; the default
        None tries a few common shapes.
    norm
        What replaces batch norm: ``"none"`` (default) leaves it out, ``"layer"`` normalises all channels together
        (``nn.GroupNorm(1, channels)``), ``"group"`` up to 32 groups of at least two channels.

    Returns
    -------
    Adapted
        The changed module, the changes and the remaining obstacles.

    Raises
    ------
    InputTypeError
        If ``module`` is not a module.
    InputError
        If ``norm`` is unknown, or the changed module cannot take inputs of ``input_shape``.

    See Also
    --------
    ntkit.infinite_width : the kernels of the adapted module.
    ntkit.empirical, ntkit.monte_carlo : kernels of the unchanged module.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 1))
    >>> adapted = ntkit.adapt(net, (3, 8, 8))
    >>> [(change.path, change.before, change.after) for change in adapted.changes]
    [('1', 'BatchNorm2d', 'nothing'), ('3', 'MaxPool2d', 'AvgPool2d')]
    >>> limit = ntkit.infinite_width(adapted.module)
    """
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")
    if norm not in ("none", "layer", "group"):
        raise InputError(f'norm must be "none", "layer" or "group". Got {norm!r}.')
    adapted, replaced = replace_layers(copy.deepcopy(module).eval(), norm)
    adapted, rewritten = rewrite_graph(adapted)
    return Adapted(adapted, (*replaced, *rewritten), _obstacles(adapted, input_shape))


def _obstacles(module: nn.Module, input_shape: Sequence[int] | None) -> tuple[Problem, ...]:
    try:
        tracer = Tracer(module, GainRule())
        if input_shape is not None:
            tracer.program(input_shape)
    except UnsupportedLayerError as error:
        return error.problems
    return ()
