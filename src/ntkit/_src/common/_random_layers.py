"""Layers that draw random numbers in training mode, so that the module has no kernel of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ._module_state import copy_module

__all__ = ["RANDOM", "RANDOM_INSTEAD", "drawing_layers", "random_layers"]

RANDOM = "in training mode its outputs are random, so there is no kernel"
RANDOM_INSTEAD = "write module.eval(), which turns it off, or leave it out"


def random_layers(module: nn.Module) -> list[str]:
    """Return the paths of dropout that is on: the layers of torch.nn that draw in training mode."""
    return [path for path, layer in module.named_modules() if layer.training and _probability(layer) > 0]


def drawing_layers(module: nn.Module, training: Set[str], *args: Any, **kwargs: Any) -> dict[str, str]:
    """Return the innermost layers that draw random numbers in training mode alone: their class by path, "" for the module."""
    # Dropout by functions and layers that are not those of torch.nn (stochastic depth) only show in a run, of a copy whose layers
    # at the paths ``training`` are in that mode. If the module does not take the arguments, only :func:`random_layers` are found.
    if not training:
        return {}
    copied = copy_module(module)
    layers = dict(copied.named_modules())
    for path, layer in layers.items():
        layer.training = path in training
    known, found = random_layers(copied), _drawn(copied, args, kwargs)
    always = _drawn(copied.eval(), args, kwargs) if found else []
    return {path: type(layers[path]).__name__ for path in [*known, *found] if path not in always}


def _drawn(module: nn.Module, args: Any, kwargs: Any) -> list[str]:
    """Return the paths of the innermost layers that draw in a run."""
    draws, hooks = _Draws(), []
    for path, layer in module.named_modules():
        hooks.append(layer.register_forward_pre_hook(partial(draws.enter, path), prepend=True))
        hooks.append(layer.register_forward_hook(draws.leave))
    # The run ends early if the module's code raises: batch norm, for one, takes no single row in training mode.
    with torch.no_grad(), draws, suppress(Exception):
        module(*args, **kwargs)
    for hook in hooks:
        hook.remove()
    return draws.found


class _Draws(TorchDispatchMode):
    """Remembers where random numbers are drawn, and draws none: the generator belongs to other threads too."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, which takes a second, to exclude this class from it."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inside: list[str] = []
        self.found: list[str] = []

    def enter(self, path: str, layer: nn.Module, inputs: Any) -> None:
        """Note that a layer starts."""
        self.inside.append(path)

    def leave(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        """Note that it is done."""
        self.inside.pop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags or _off(func._schema, args, kwargs or {}):
            return func(*args, **(kwargs or {}))
        self.found.append(self.inside[-1] if self.inside else "")
        if not func._schema.name.endswith("_"):
            raise StopIteration  # a new tensor of random numbers, which nothing can stand for
        return args[0]


def _off(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an operation that can draw has its dropout off, as attention has by default."""
    given = {one.name: one.default_value for one in schema.arguments if one.has_default_value()}
    given |= {one.name: value for one, value in zip(schema.arguments, args, strict=False)} | dict(kwargs)
    return given.get("dropout_p") == 0 or False in (given.get("train"), given.get("training"))


def _probability(layer: nn.Module) -> float:
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return float(layer.p)
    if isinstance(layer, nn.RNNBase):
        return float(layer.dropout) if layer.num_layers > 1 else 0.0
    return float(layer.dropout) if isinstance(layer, nn.MultiheadAttention) else 0.0
