"""Where a function that torch computes is not smooth, found by running it once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["Kink", "find_kinks"]

# fmt: off
_KINKED = frozenset([
    "Relu", "LeakyRelu", "PreluKernel", "RreluWithNoise", "Threshold", "Hardtanh", "Hardsigmoid", "Hardswish",
    "Hardshrink", "Softshrink", "Abs", "Clamp", "ClampMin", "ClampMax", "Maximum", "Minimum", "Fmax", "Fmin", "Max",
    "Min", "Amax", "Amin", "Aminmax", "MaxPool2DWithIndices", "MaxPool3DWithIndices", "MkldnnMaxPool2D",
    "MkldnnMaxPool3D", "AdaptiveMaxPool2D", "AdaptiveMaxPool3D", "FractionalMaxPool2D", "FractionalMaxPool3D", "Sort",
    "Topk", "Kthvalue", "Median", "Nanmedian", "Mode", "Cummax", "Cummin", "Frac", "Fmod", "Remainder", "Sgn", "Sign",
    "Round", "Floor", "Ceil", "Trunc", "Copysign", "Renorm", "MultiMarginLoss", "MultilabelMarginLoss",
])
# fmt: on
_BENT = frozenset(["Celu", "SmoothL1Loss", "HuberLoss"])
_GUARD = 1e-5  # a lower bound this much smaller than all values only prevents a division by zero


@dataclass(frozen=True)
class Kink:
    """An operation that is not smooth."""

    name: str  # what torch calls it
    # The first derivative that jumps: 1 for kinks like that of ReLU (and for functions that jump themselves), 2
    # for functions like ELU whose slope is continuous and whose curvature is not.
    order: int


def find_kinks(outputs: Callable[[], Tensor]) -> list[Kink]:
    """Run a computation, and return its operations on differentiated tensors that are not smooth, by order and name."""
    # The graph that autograd records has every operation, whichever module or function called it. It lacks choices:
    # ``torch.where(z > 0, z, 0)`` and ``z * (z > 0)`` are found as comparisons whose result enters a differentiated tensor. Of an
    # ``autograd.Function`` only what it records is seen. A composition may be smoother than its parts, as ``relu(z) ** 3`` is.
    choices = _Choices()
    with torch.enable_grad(), choices:
        values = outputs()
    found = set(choices.found)
    for node in _nodes(values.grad_fn):
        name = node.name().partition("Backward")[0]
        order = _order(name, node)
        if order is not None:
            found.add(Kink(_readable(name), order))
    return sorted(found, key=lambda kink: (kink.order, kink.name))


def _nodes(last: Any) -> Iterator[Any]:
    seen, waiting = {last}, [last]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        yield node
        new = {before for before, _ in node.next_functions} - seen
        seen |= new
        waiting += new


def _order(name: str, node: Any) -> int | None:
    """Return the first derivative of an operation that jumps; None if all of the first few are continuous."""
    if name == "Elu":  # alpha (exp(s z) - 1) below zero
        return 2 if math.isclose(node._saved_alpha * node._saved_input_scale, 1) else 1
    if name in _BENT:
        return 2
    if name in ("Clamp", "ClampMin") and getattr(node, "_saved_max", None) is None:
        bound = node._saved_min
        guards = isinstance(bound, int | float) and 0 < bound <= _GUARD * float(node._saved_self.detach().min())
        return None if guards else 1
    if name in ("LinalgVectorNorm", "Norm", "Cdist", "Dist"):
        power = node._saved_ord if name == "LinalgVectorNorm" else node._saved_p
        return None if power is None or (math.isfinite(power) and power > 0 and power % 2 == 0) else 1
    chosen = (
        name in _KINKED
        or (name == "Div" and getattr(node, "_saved_rounding_mode", None) is not None)
        or getattr(node, "_saved_reduce", None) in ("max", "min", "amax", "amin")
        or (name == "EmbeddingBag" and node._saved_mode == 2)
        or (name.startswith("GridSampler") and node.next_functions[1][0] is not None)
    )
    return 1 if chosen else None


def _readable(name: str) -> str:
    """Return the name of a function for that of its node: ``MaxPool2DWithIndices`` is ``max_pool2d``."""
    name = name.removesuffix("WithIndices").removesuffix("Kernel").removesuffix("WithNoise")
    spaced = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return spaced.lstrip("_").replace("2_d", "2d").replace("3_d", "3d")


class _Choices(TorchFunctionMode):
    """Find comparisons of differentiated tensors whose results enter differentiated tensors again."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[Kink] = set()
        # By id: values without gradients that depend on differentiated ones, and the names of the choices among them. The
        # tensors are held so that no other takes their ids.
        self._dependent: dict[int, Tensor] = {}
        self._chosen: dict[int, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        depends = [one for one in given if one.requires_grad or id(one) in self._dependent]
        if not depends or name.startswith("new_") or name.endswith("_like"):
            return result  # new tensors take only the shape of others
        choice = next((self._chosen[id(one)] for one in given if id(one) in self._chosen), None)
        # Assignments such as z[mask] = 0 return nothing and change their first argument.
        for one in tree_leaves(args[0] if result is None else result):
            if not isinstance(one, Tensor):
                continue
            if one.requires_grad:
                if choice is not None:
                    self.found.add(Kink(choice, 1))
            else:
                self._dependent[id(one)] = one
                if choice is not None or not one.is_floating_point():
                    self._chosen.setdefault(id(one), choice or name.strip("_"))
        return result
