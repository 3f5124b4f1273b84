"""Constraints learnt where sizes meet: which widths must be equal, which must stay, and which free parameters follow them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ._resize import resizes

_TRIES = 50  # an operation fails once per input that does not fit


class Restart(Exception):
    """Raised when something new was learnt about the widths, to run again."""


@dataclass
class Widths:
    """Widths that must be multiplied together."""

    # For each owner of a width (a layer's path, or path and dimension of a free parameter), another one that must
    # be widened with it, or itself if there is none.
    parent: dict[str, str] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)  # owners whose width must stay
    # For a parameter or buffer that belongs to no known layer: by dimension, the owner that it follows.
    free: dict[str, dict[int, str]] = field(default_factory=dict)
    learned: int = 0  # number of joins, fixes and follows so far

    def root(self, owner: str) -> str:
        """Return the representative of all owners that are widened together."""
        while self.parent.setdefault(owner, owner) != owner:
            owner = self.parent[owner]
        return owner

    def join(self, first: str, second: str) -> None:
        """Widen two owners together from now on."""
        a, b = self.root(first), self.root(second)
        self.parent[b] = a
        self.learned += 1
        if b in self.fixed:
            self.fixed.add(a)

    def fix(self, owner: str) -> None:
        """Keep a width constant."""
        self.fixed.add(self.root(owner))
        self.learned += 1

    def is_hidden(self, owner: str) -> bool:
        """Whether a width is multiplied."""
        return self.root(owner) not in self.fixed

    def multiplied(self, factor: float) -> Callable[[str], float]:
        """Return what each width is multiplied by: the factor if it is hidden."""
        return lambda owner: factor if self.is_hidden(owner) else 1


class Meeting(TorchFunctionMode):
    """Watches every operation and learns from those that fail because sizes differ."""

    def __init__(self, widths: Widths, marks: Mapping[str, int], module: nn.Module) -> None:
        super().__init__()
        self.widths, self.marks = widths, marks
        self.sizes = {name: tuple(tensor.shape) for name, tensor in free_tensors(module)}
        # Free parameters and tensors computed from a single one, such as a class token repeated for the batch.
        self.free = {id(tensor): (name, tensor) for name, tensor in free_tensors(module)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = (args, kwargs or {})
        tensors = _tensors(inputs)
        for _ in range(_TRIES):
            try:
                result = func(*inputs[0], **inputs[1])
                break
            except (RuntimeError, ValueError) as error:
                inputs = self._learn(func, inputs, error)
        else:
            raise Restart
        if len(tensors) == 1 and id(tensors[0]) in self.free and isinstance(result, Tensor):
            self.free.setdefault(id(result), (self.free[id(tensors[0])][0], result))
        return result

    def _learn(self, func: Any, inputs: Any, error: Exception) -> Any:
        """Learn from a failed operation, and return inputs for which it succeeds, so that one run learns as much as possible."""
        for a, i, b, j in _meetings(func, _tensors(inputs)):
            first, second = a.shape[i], b.shape[j]
            if self._follow(a, first, second):
                return _replaced(inputs, a, i, second)
            if self._follow(b, second, first):
                return _replaced(inputs, b, j, first)
            marked = bool(decode(second, self.marks)[1])
            if meet(first, second, self.widths, self.marks):
                # A fixed size stays: it is that of the tensor without a mark.
                return _replaced(inputs, b, j, first) if marked else _replaced(inputs, a, i, second)
        raise error

    def _follow(self, tensor: Tensor, size: int, other: int) -> bool:
        """Let a free parameter follow the width that it meets, and return whether it does."""
        name, _ = self.free.get(id(tensor), (None, None))
        base, owners = decode(other, self.marks)
        if name is None or len(owners) != 1 or base != size:
            return False
        dims = [dim for dim, own in enumerate(self.sizes[name]) if own == size]
        if not dims:
            return False
        self.widths.free.setdefault(name, {})[dims[-1]] = owners[0]
        self.widths.learned += 1
        return True


def _replaced(inputs: Any, old: Tensor, dim: int, size: int) -> Any:
    """Return the inputs with one tensor resized along a dimension."""
    shape = list(old.shape)
    shape[dim] = size
    new = torch.empty(shape, dtype=old.dtype, device="meta")
    return pytree.tree_map(lambda leaf: new if leaf is old else leaf, inputs)


def _tensors(inputs: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(inputs) if isinstance(leaf, Tensor)]


def _meetings(func: object, tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, int, Tensor, int]]:
    """Yield pairs of dimensions that should be equal but are not: as in a matrix product, or as in broadcasting."""
    product = getattr(func, "__name__", "") in ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm")
    for number, a in enumerate(tensors):
        for b in tensors[number + 1 :]:
            shared = min(a.ndim, b.ndim)
            pairs = [(-1, max(-2, -b.ndim))] if product else [(-k, -k) for k in range(1, shared + 1)]
            pairs += [] if product else [(k, k) for k in range(shared)]
            for i, j in pairs:
                if a.ndim and b.ndim and a.shape[i] != b.shape[j] and a.shape[i] != 1 != b.shape[j]:
                    yield a, i, b, j


def meet(first: int, second: int, widths: Widths, marks: Mapping[str, int]) -> bool:
    """Learn from two sizes that must be equal: join their owners, or fix the one that meets a fixed size."""
    if first == second:
        return False
    (base1, owners1), (base2, owners2) = decode(first, marks), decode(second, marks)
    if base1 != base2 or not (owners1 or owners2) or max(len(owners1), len(owners2)) > 1:
        return False
    if owners1 and owners2:
        widths.join(owners1[0], owners2[0])
    else:
        widths.fix((owners1 or owners2)[0])
    return True


def decode(size: int, marks: Mapping[str, int]) -> tuple[int, list[str]]:
    """Factor a size: what it would be in the original network, and whose marks it carries."""
    owners = []
    for owner, mark in marks.items():
        while size and size % mark == 0:
            size //= mark
            owners.append(owner)
    return size, owners


def free_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers of modules that do not resize themselves."""
    for path, layer in module.named_modules():
        if not resizes(layer):
            for name, tensor in (*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)):
                yield f"{path}.{name}" if path else name, tensor
