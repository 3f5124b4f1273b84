"""The nearest module that has an infinite-width limit, and the changes that lead to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from torch import nn

from ntkit._src.common import check_choice, copy_module
from ntkit.errors import InputError, InputTypeError, Problem, UnsupportedLayerError

from .._gains import GainRule
from .._trace import TRACING, Tracer
from ._graph import rewrite_graph
from ._layers import Change, Norm, replace_layers
from ._proof import example_of, prove_graph, prove_layers


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
    - Batch norm is left out, or becomes a norm over channels and positions (``norm``); its weight and bias go with it. Of a
      subclass with its own forward (timm's ``BatchNormAct2d``: norm, dropout, activation), the norm alone is replaced.
    - A residual block that activates its sum becomes a pre-activation block (He et al. 2016, "Identity mappings in deep
      residual networks"): the shortcut carries the sum itself, the branch reads its activation. Sums are found in the
      graph of the forward pass, whatever the blocks are called.
    - Dropout and stochastic depth are off, as in evaluation. A trained factor per channel (layer scale) after a layer is
      left out.

    Everything else stays. What has neither a limit nor a near relative stays too and is listed in ``obstacles`` with the reason:
    depthwise convolutions on hidden channels (so MobileNet and ConvNeXt have obstacles), instance norm, softmax attention
    without ``attention_samples``, linear layers written as matrix products (GPT-2's ``Conv1D``: use ``nn.Linear`` with the
    transposed weight), layers of the families above with hooks, parametrisations, or a forward that cannot be read.
    The changed module is a different network: its kernel is that of a similar architecture, not of the original module.

    Before it is returned, the original's own code is run on random inputs with the listed changes in place. The changed module
    must give the same outputs and derivatives in all trained parameters, so that nothing but what is listed has changed.

    Parameters
    ----------
    module
        The module, which is copied, not changed.
    input_shape
        Shape of one input, without the batch; the default None tries a few common shapes.
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
        If ``norm`` is unknown, the module cannot take inputs of ``input_shape``, or no guess of it fits; and if the changed
        module differs from the original in more than the listed changes (code that depends on a layer's type, hooks).

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
    check_choice("norm", norm, get_args(Norm))
    with TRACING:
        original = copy_module(module).eval()
        replaced = replace_layers(copy_module(original), norm)
        rewritten = rewrite_graph(copy_module(replaced.module))
        if replaced.changes or rewritten.changes:
            example = example_of(original, input_shape)
            prove_layers(original, replaced.module, replaced.swaps, example)
            if rewritten.changes:
                prove_graph(replaced.module, rewritten.module, rewritten.swaps, example)
        adapted = rewritten.module
        problems = [replaced.kept.get(problem.path, problem) for problem in _obstacles(adapted, input_shape)]
    if problems:
        problems += replaced.kept.values()
    return Adapted(adapted, (*replaced.changes, *rewritten.changes), tuple(dict.fromkeys(problems)))


def _obstacles(module: nn.Module, input_shape: Sequence[int] | None) -> tuple[Problem, ...]:
    try:
        tracer = Tracer(module, GainRule())
        if input_shape is not None:
            tracer.program(input_shape)
        elif not tracer.was_read:
            raise InputError(
                "input_shape must be the shape of one input, such as (3, 32, 32): it cannot be guessed from the module's layers, "
                "so nothing shows whether the module has a limit. Got None."
            )
    except UnsupportedLayerError as error:
        return error.problems
    return ()
