"""Forwards of several arguments as functions of one tensor: their values side by side in one row for each input."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ntkit.errors import InputError, Problem, UnsupportedLayerError

from ._nodes import ROOT


@dataclass(frozen=True)
class Arguments:
    """What a packed row holds: for each argument its name (None: by position), its shape without the batch, and its dtype."""

    names: tuple[str | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @property
    def parts(self) -> list[slice]:
        """The columns of each argument."""
        ends = list(accumulate(map(math.prod, self.shapes), initial=0))
        return [slice(*ends[i : i + 2]) for i in range(len(self.shapes))]

    @property
    def scaled(self) -> Tensor:
        """Which columns hold numbers that may be scaled, shape (size,): neither integers nor truth values."""
        flags = [
            torch.full((math.prod(s),), d.is_floating_point) for s, d in zip(self.shapes, self.dtypes, strict=True)
        ]
        return torch.cat(flags)

    def pack(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return tensors (n, *shape) as rows, shape (n, size), in the widest of their floating dtypes, else float64."""
        floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
        dtype = max(floating, key=lambda own: own.itemsize, default=torch.float64)
        rows = [tensor.reshape(len(tensor), -1).to(dtype) for tensor in tensors]
        for row, tensor in zip(rows, tensors, strict=True):
            if not tensor.is_floating_point() and not torch.equal(row.to(tensor.dtype).flatten(), tensor.flatten()):
                raise InputError(f"integers beyond the range of {dtype} cannot stand beside it. Pass float64 tensors.")
        return torch.cat(rows, 1)

    def call(self, rows: Tensor) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of the forward, by position and by name."""
        args: list[Any] = []
        named: dict[str, Any] = {}
        for name, part, shape, dtype in zip(self.names, self.parts, self.shapes, self.dtypes, strict=True):
            value = rows[:, part].unflatten(1, shape) if shape else rows[:, part.start]
            if dtype == torch.bool:
                value = value > 0.5
            elif not dtype.is_floating_point:
                value = value.round().to(dtype)
            if name is None:
                args.append(value)
            else:
                named[name] = value
        return args, named


class Packed(nn.Module):
    """A module that takes packed rows; ``packed`` makes its classes."""

    arguments: ClassVar[Arguments]
    rows: ClassVar[Tensor]  # two rows of the user's, whose integers and truth values examples have

    def example(self, n: int, generator: torch.Generator) -> Tensor:
        """Return n rows of random numbers, with integers and truth values that the module takes, float64."""
        known = self.rows[torch.arange(n) % len(self.rows)].to(torch.float64)
        drawn = torch.randn(known.shape, generator=generator, dtype=torch.float64)
        return torch.where(self.arguments.scaled, drawn, known)

    def scale(self, rows: Tensor, factors: Tensor) -> Tensor:
        """Return rows with their numbers scaled."""
        return torch.where(self.arguments.scaled.to(rows.device), rows * factors, rows)


def packed(module: nn.Module, arguments: Arguments, rows: Tensor) -> nn.Module:
    """Return a module that shares everything with the given one and takes rows of packed arguments."""
    if module._forward_pre_hooks or module._forward_hooks:
        reason, instead = "its hooks read several arguments", "put what they do into the forward"
        raise UnsupportedLayerError((Problem(ROOT, type(module).__name__, reason, instead),))
    kind = type(module)

    own = vars(module).get("forward")

    @wraps(kind.forward if own is None else own)
    def forward(self: Any, x: Tensor) -> Any:
        args, named = arguments.call(x)
        return kind.forward(self, *args, **named) if own is None else own(*args, **named)

    counts = rows.detach().cpu().to(torch.float64)[:, ~arguments.scaled].sum(1)
    chosen = rows.detach().cpu()[[0, int(counts.argmin())] if counts.numel() else [0]].clone()
    members = {"forward": forward, "arguments": arguments, "rows": chosen}
    other = copy.copy(module)
    other.__dict__.pop("forward", None)
    other.__class__ = type(kind.__name__, (Packed, kind), members)
    return other
