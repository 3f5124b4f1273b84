"""Inputs to trace a module with: guesses of their shape, examples, and which operation fails on those that it does not take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

from ntkit._src.common import copy_module
from ntkit._src.layers import SelfAttention

from ._packed import Packed

_BATCH = 2


def embeddings_of(module: nn.Module) -> list[nn.Embedding | nn.EmbeddingBag]:
    """Return the layers that look up integers."""
    return [layer for layer in module.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]


def examples(module: nn.Module, shape: Sequence[int]) -> Iterator[tuple[Tensor, torch.dtype]]:
    """Yield batches of a shape that the module may take, with the parameters' dtype: not half precision, which hides errors."""
    device = next((p.device for p in module.parameters() if p.is_floating_point()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    if isinstance(module, Packed):
        values = module.example(_BATCH, generator).to(device)
    else:
        values = torch.randn((_BATCH, *shape), generator=generator, dtype=torch.float64).to(device)
    yield from ((values.to(dtype), dtype) for dtype in (torch.float64, torch.float32))
    tables = embeddings_of(module)
    if tables and not isinstance(module, Packed):
        rows = min(layer.num_embeddings for layer in tables)
        yield torch.randint(rows, (_BATCH, *shape), generator=generator.manual_seed(0)).to(device), torch.float64


def guesses(module: nn.Module) -> list[tuple[int, ...]]:
    """Guess input shapes from the first layer with weights."""
    attends = any(isinstance(layer, (nn.MultiheadAttention, SelfAttention)) for layer in module.modules())
    for layer in module.modules():
        if isinstance(layer, nn.Embedding):
            return [(8,), (4,), (16,), (2,), (1,), ()]
        if isinstance(layer, nn.Linear):
            width = layer.in_features
            return [(width,), (4, width), (3, 8, 8), (1, 8, 8), (1,), (2,), (3,)]
        found = _convolution(layer)
        if found is not None:
            ndim, channels = found
            sides = (32, 28, 64, 16, 8) if ndim < 3 else (16, 8)
            # The cost of attention grows with the square of the pixels.
            return [(channels, *(side,) * ndim) for side in ((8, 4, 16) if attends else sides)]
    return []


def shapes_with_positions(module: nn.Module, positions: Sequence[int]) -> list[tuple[int, ...]]:
    """Guess shapes of inputs with given lengths of position axes: the channels are those of the first layer."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            return [(*positions, layer.in_features)]
        found = _convolution(layer)
        if found is not None:
            return [(found[1], *positions)] if len(positions) == found[0] else []
    return []


def with_channels(module: nn.Module, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the input shape with the channels of the first convolution in front, if they seem to be missing."""
    found = next((found for layer in module.modules() if (found := _convolution(layer)) is not None), None)
    return [(found[1], *shape)] if found is not None and len(shape) == found[0] else []


def shown_shape(shape: Sequence[int]) -> str:
    """Return the shape of a batch of inputs as messages write it."""
    return f"(n, {', '.join(map(str, shape))})" if shape else "(n,)"


def _convolution(layer: nn.Module) -> tuple[int, int] | None:
    """Return the number of position axes and of input channels of a convolution; None for other layers."""
    return (len(layer.kernel_size), layer.in_channels) if isinstance(layer, _ConvNd) else None


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
