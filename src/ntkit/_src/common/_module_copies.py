"""Copying modules, even if they hold computed tensors, which torch cannot copy."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ntkit.errors import InputError

__all__ = ["OwnParameters", "copy_module"]


def copy_module(module: nn.Module) -> nn.Module:
    """Copy a module, even one whose weights are recomputed in every call (pruning, weight norm).

    Such weights are results of operations, which torch cannot copy; the copy recomputes them, so here they are zeros.
    """
    memo: dict[int, object] = {}
    for layer in module.modules():
        for value in vars(layer).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return copy.deepcopy(module, memo)


class OwnParameters(TorchFunctionMode):
    """A guard that refuses to run a copy of a module that computes with the original's parameters.

    Functions are not copied, so a hook or a forward that closes over a layer keeps using that layer, whatever happens to
    the copy's parameters.
    """

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self._names = {id(p): (name, weakref.ref(p)) for name, p in original.named_parameters()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            name, parameter = self._names.get(id(leaf), ("", None))
            if parameter is not None and parameter() is leaf:
                raise InputError(
                    f"a function in the module (a hook, a forward or an activation) closes over a layer and uses its parameter "
                    f"{name!r}, so a copy of the module would not compute with its own. Let the function take the layer as an "
                    "argument: write it as a method of a subclass, or types.MethodType(function, layer)."
                )
        return func(*args, **(kwargs or {}))
