"""Which widths of a module are hidden, found by running it on meta tensors with layers that resize themselves.

Every layer that creates channels gets an output of its own size, the old one times a prime that marks it. Layers accept
whatever arrives. If two marked sizes meet in one operation (a residual sum), their owners must be widened together; if
a marked size meets a fixed one, or reaches the output, its owner keeps its width. Then the module runs again.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ntkit.errors import InputError

from ._equal_widths import Meeting, Restart, Widths, decode, meet
from ._resize import CHANNELS_FIRST, Shape, resize_input, resizing_layers

_FIRST_MARK = 101


class Conflict(Exception):
    """Raised for a layer whose input no wider network could have."""


Shapes = dict[str, list[tuple[tuple[int, ...], ...]]]
"""By layer and call, the shapes of the tensors it received."""


@dataclass(frozen=True)
class Settling:
    """The context of a run that learns about widths: shapes in the original network, and the marks in use by owner."""

    original: Shapes
    marks: dict[str, int]


def find_widths(module: nn.Module, examples: Sequence[Tensor]) -> Widths:
    """Find out which widths of a module with plain weights are hidden; it and its ``examples`` are on the meta device."""
    widths, settling = Widths(), Settling({}, {})
    outputs, original = run(module, examples, widths, None)
    settling.original.update(original)
    marks = _marks(module, examples, original)

    def multiplier(owner: str) -> int:
        if not widths.is_hidden(owner):
            return 1
        root = widths.root(owner)
        if root not in settling.marks:
            settling.marks[root] = next(marks)
        return settling.marks[root]

    tensors = sum(1 for _ in module.parameters()) + sum(1 for _ in module.buffers())
    for _ in range(8 * (tensors + 2)):  # each run but the last joins or fixes something
        known = widths.learned
        try:
            seen, _ = run(module, examples, widths, multiplier, settling)
        except Restart:
            continue
        if widths.learned == known and seen == outputs:
            return widths
        if widths.learned == known:
            _fix_outputs(
                outputs, seen, lambda multiply: run(module, examples, widths, multiply)[0], settling.marks, widths
            )
    raise InputError("the widths of the module could not be settled. Build the wider module by its own constructor.")


def run(
    module: nn.Module,
    examples: Sequence[Tensor],
    widths: Widths,
    multiplier: Callable[[str], float] | None,
    settling: Settling | None = None,
) -> tuple[list[tuple[int, ...]], Shapes]:
    """Run a copy on meta tensors whose layers resize themselves; without a multiplier they keep their sizes."""
    # Returns the shapes of the outputs, and those that each layer received. While settling it raises :class:`Restart` if
    # something was learnt; a module that cannot run is a :class:`Conflict`.
    probe = copy.deepcopy(module)
    for parameter in probe.parameters():
        parameter.requires_grad_(parameter.is_floating_point())  # keeps torch from paths that bypass the layers
    if multiplier is not None:
        for name, dims in widths.free.items():
            stretch(probe, name, [(dim, multiplier(owner)) for dim, owner in dims.items()])
    shapes: Shapes = {}
    stack: list[str] = []
    for path, layer in resizing_layers(probe):
        layer.register_forward_pre_hook(partial(_before, path, widths, multiplier, shapes, settling), with_kwargs=True)
    for path, layer in probe.named_modules():
        layer.register_forward_pre_hook(partial(_enter, stack, path), prepend=True)
        layer.register_forward_hook(partial(_leave, stack))
    try:
        with (
            warnings.catch_warnings(),
            torch.device("meta"),
            Meeting(widths, settling.marks, probe) if settling else nullcontext(),
        ):
            warnings.simplefilter("ignore")  # warnings of the forward, which reappear in a real run
            output = probe(*examples)
    except (Restart, Conflict, InputError):
        raise
    except Exception as error:  # the module's own code may raise anything
        place = f"in {stack[-1]!r}" if stack and stack[-1] else "in its forward"
        raise Conflict(f"{place}: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from error
    return [tuple(leaf.shape) for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)], shapes


def _enter(stack: list[str], path: str, layer: nn.Module, args: Any) -> None:
    stack.append(path)


def _leave(stack: list[str], layer: nn.Module, args: Any, output: Any) -> None:
    stack.pop()


def _before(
    path: str,
    widths: Widths,
    multiplier: Callable[[str], float] | None,
    shapes: Shapes,
    settling: Settling | None,
    layer: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> None:
    arriving = tuple(tuple(a.shape) for a in pytree.tree_leaves((args, kwargs)) if isinstance(a, Tensor))
    calls = shapes.setdefault(path, [])
    calls.append(arriving)
    if settling is not None:
        before = settling.original.get(path, [])
        _check_positions(path, layer, before[len(calls) - 1] if len(calls) <= len(before) else (), arriving)
        for first, now in zip(calls[0], arriving, strict=False):
            for a, b in zip(first, now, strict=False):
                if meet(a, b, widths, settling.marks):  # a layer called twice has one input size
                    raise Restart
    if len(calls) == 1 and multiplier is not None:
        resize_input(layer, arriving, multiplier(path))


def _check_positions(path: str, layer: nn.Module, before: Sequence[Shape], now: Sequence[Shape]) -> None:
    """Check that all but the channels arrives as in the original network; otherwise a reshape with fixed sizes moved it."""
    if [len(shape) for shape in before] != [len(shape) for shape in now]:
        raise Conflict(f"layer {path!r} is called with different arguments once the layers before it are wider")
    for old, new in zip(before, now, strict=True):
        for dim, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b and (dim == 0 or (isinstance(layer, CHANNELS_FIRST) and dim != 1)):
                raise Conflict(
                    f"layer {path!r} ({type(layer).__name__}) receives {old}, and dimension {dim}, which is not its "
                    "channels, changes once the layers before it are wider"
                )


def _fix_outputs(
    outputs: Sequence[Shape],
    seen: Sequence[Shape],
    run_with: Callable[[Callable[[str], int]], Sequence[Shape]],
    marks: Mapping[str, int],
    widths: Widths,
) -> None:
    """Fix the owners of sizes that reach the output."""
    reaching: set[str] = set()
    for old, new in zip(outputs, seen, strict=True):
        if len(old) != len(new) or old[:1] != new[:1]:
            raise Conflict("its output has another batch size once hidden layers are wider")
        for a, b in zip(old, new, strict=True):
            if a != b:
                base, owners = decode(b, marks)
                reaching.update(owners if base == a else [])
    if not reaching:  # sizes were summed, as by torch.cat: mark one owner at a time
        for owner, mark in marks.items():

            def alone(other: str, owner: str = owner, mark: int = mark) -> int:
                return mark if widths.root(other) == owner else 1

            if widths.root(owner) == owner and widths.is_hidden(owner) and list(run_with(alone)) != list(outputs):
                reaching.add(owner)
    if not reaching:
        raise Conflict("the shape of its output changes in a way that no single width explains")
    for owner in reaching:
        widths.fix(owner)


def stretch(module: nn.Module, name: str, factors: Sequence[tuple[int, float]]) -> None:
    """Repeat the values of a free parameter or buffer along some dimensions."""
    path, _, own = name.rpartition(".")
    layer = module.get_submodule(path)
    tensor = getattr(layer, own)
    value = tensor.detach()
    for dim, factor in factors:
        index = torch.arange(round(value.shape[dim] * factor), device=value.device) % value.shape[dim]
        value = value.index_select(dim, index)
    if isinstance(tensor, nn.Parameter):
        setattr(layer, own, nn.Parameter(value, requires_grad=tensor.requires_grad))
    else:
        setattr(layer, own, value)


def _marks(module: nn.Module, examples: Sequence[Tensor], shapes: Shapes) -> Iterator[int]:
    """Yield primes that divide no size of the original network, so that marked sizes can be factored again."""
    known = {size for tensor in (*module.parameters(), *module.buffers(), *examples) for size in tensor.shape}
    known |= {size for calls in shapes.values() for call in calls for shape in call for size in shape}
    candidate = _FIRST_MARK
    while True:
        prime = all(candidate % divisor for divisor in range(2, int(candidate**0.5) + 1))
        if prime and all(size % candidate for size in known if size):
            yield candidate
        candidate += 2
