"""Locates the operation that fails on an input that a module does not accept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ntkit._src.common import copy_module

_PRODUCTS = ("matmul", "__matmul__", "__rmatmul__", "bmm", "mm")


class _Calls(TorchFunctionMode):
    """Remembers the operation of torch that raised first: its name, the shapes of its tensors, and einsum's equation."""

    def __init__(self) -> None:
        super().__init__()
        self.name = self.equation = ""
        self.shapes: list[tuple[int, ...]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except Exception:
            if not self.name:
                self.name = getattr(func, "__name__", str(func))
                given = [*args, *(kwargs or {}).values()]
                flat = [one for each in given for one in (each if isinstance(each, (list, tuple)) else [each])]
                self.equation = args[0] if args and isinstance(args[0], str) else ""
                self.shapes = [tuple(one.shape) for one in flat if isinstance(one, Tensor)]
            raise


def takes(module: nn.Module, x: Tensor) -> bool:
    """Return whether the module runs on a batch."""
    try:
        with torch.no_grad():
            module(x)
    except Exception:  # the module's own code may raise anything
        return False
    return True


def failing_operation(module: nn.Module, x: Tensor, root: str) -> str:
    """Name the innermost layer (``root``: the forward itself) and operation that raise for a batch, with what would be right."""
    module = copy_module(module).to(x.dtype)
    inside: list[str] = []
    for path, layer in module.named_modules():
        layer.register_forward_pre_hook(lambda own, args, path=path: inside.append(path), prepend=True)
        layer.register_forward_hook(lambda own, args, output: inside.pop() and None)
    with _Calls() as calls:
        if takes(module, x) or not inside:
            return ""
    path = inside[-1]
    layer = f"layer {path!r} ({type(module.get_submodule(path)).__name__})" if path else root
    return f"{layer}: {_operation(calls.name, calls.equation, calls.shapes)}"


def _operation(name: str, equation: str, shapes: list[tuple[int, ...]]) -> str:
    """Name an operation with the shapes of its operands, and say of a matrix product which sizes fit."""
    if not name or not shapes:
        return ""
    of = f"{name} of {'shape' if len(shapes) == 1 else 'shapes'} {' and '.join(map(str, shapes))}: "
    if len(shapes) == 2 and name in _PRODUCTS:
        return of + _product(*(reversed(shapes) if name == "__rmatmul__" else shapes))
    if len(shapes) == 2 and name == "einsum":
        return of + _einsum(equation, *shapes)
    return of


def _product(left: tuple[int, ...], right: tuple[int, ...]) -> str:
    if min(len(left), len(right)) < 2 or left[-1] == right[-2]:
        return ""
    rows = right[-2] if left[-2] == left[-1] else left[-2]  # the map of a graph, its adjacency, is square
    fits = f"a matrix of shape ({rows}, {right[-2]})"
    remedy = f"Give each input {fits}" if len(left) > 2 else f"Use {fits}, or inputs that have {left[-1]} rows there"
    return f"the left matrix must have {right[-2]} columns, one for each row of the right. Got {left[-1]}. {remedy}. torch says: "


def _einsum(equation: str, left: tuple[int, ...], right: tuple[int, ...]) -> str:
    terms = equation.replace(" ", "").split("->")[0].split(",")
    if [len(term) for term in terms] != [len(left), len(right)] or "." in equation:
        return ""
    sizes = dict(zip(terms[1], right, strict=True))
    wrong = [(letter, size) for letter, size in zip(terms[0], left, strict=True) if sizes.get(letter, size) != size]
    if not wrong:
        return ""
    letter, size = wrong[0]
    fits = tuple(sizes.get(each, own) for each, own in zip(terms[0], left, strict=True))
    return (
        f"{letter!r} must have the same size in both. Got {size} and {sizes[letter]}. Give a left operand of shape {fits}. "
        "torch says: "
    )
