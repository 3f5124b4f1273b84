"""The output positions requested of a kernel, and whether the result fits into memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntkit._src.common import available_bytes, check_memory, shown
from ntkit._src.program import Program, Reindex
from ntkit._src.rules import cropped, pair_bytes
from ntkit.errors import InputError, InputTypeError

Positions = Sequence[int] | Sequence[Sequence[int]] | Tensor
"""Positions of an output: m integers where it has one axis, else m tuples, or a tensor of shape (m, axes)."""


@dataclass(frozen=True)
class OutputPositions:
    """A program that ends in the requested positions, and how to read its result."""

    # Its last node has only the rows and columns that contain the positions; earlier nodes have only what these
    # read, unless they are computed in full.
    program: Program
    # Shape of the output's positions as the module returns them; ``(m,)`` if m of them were chosen.
    shape: tuple[int, ...]
    # Indices of the chosen positions among all positions of the last node, shape (m,); None for all, in order.
    picked: Tensor | None

    def read(self, kernel: Tensor) -> Tensor:
        """Reshape a kernel of shape (..., *axes, *axes) to (..., *shape, *shape)."""
        axes = self.program.nodes[self.program.output].positions
        rank = len(axes)
        order = [axis for group in self.program.layout for axis in group]
        lead = kernel.ndim - 2 * rank
        kernel = kernel.permute([*range(lead), *(lead + a for a in order), *(lead + rank + a for a in order)])
        flat = kernel.reshape([*kernel.shape[:lead], math.prod(axes), math.prod(axes)])
        if self.picked is not None:
            picked = self.picked.to(flat.device)
            flat = flat[..., picked, :][..., picked]
        return flat.reshape([*flat.shape[:lead], *self.shape, *self.shape])

    def check_memory(self, pairs: int, ntk: bool, like: Tensor) -> None:
        """Refuse at once a tensor that does not fit into memory."""
        entries = pairs * math.prod(self.shape) ** 2
        held = pairs * math.prod(self.program.nodes[self.program.output].positions) ** 2
        check_memory(
            max(entries, held) * like.dtype.itemsize + pair_bytes(self.program, self.program.cross_keeps, ntk),
            f"the kernel between {math.prod(self.shape):,} positions of {pairs:,} pairs of inputs ({entries:,} entries, with the "
            "intermediate results of a pair)",
            "Choose fewer positions (at=[...]), pass fewer inputs at a time, or smaller ones.",
            available_bytes(like.device),
        )


def output_positions(program: Program, at: Positions | None) -> OutputPositions:
    """Make a program whose output keeps positions end in the requested ones, of shape (m, axes); refuse others."""
    axes = program.nodes[program.output].positions
    shape = tuple(math.prod(axes[axis] for axis in group) for group in program.layout)
    if at is None:
        return OutputPositions(program, shape, None)
    chosen = _chosen(at, shape)
    places: dict[int, Tensor] = {}  # along each axis of the last node, for every chosen position
    for column, group in enumerate(program.layout):
        left = chosen[:, column]
        for axis in reversed(group):
            places[axis] = left % axes[axis]
            left = left // axes[axis]
    spans = {axis: (int(place.min()), int(place.max()) + 1) for axis, place in places.items()}
    program = cropped(program, [range(*spans[axis]) for axis in range(len(axes))])
    places = {axis: place - spans[axis][0] for axis, place in places.items()}
    nodes = list(program.nodes)
    where = torch.zeros(len(chosen), dtype=torch.int64)
    for axis in (axis for group in program.layout for axis in group):
        index, inverse = places[axis].unique(return_inverse=True)
        if len(index) < nodes[-1].positions[axis]:
            last = nodes[-1]
            positions = (*last.positions[:axis], len(index), *last.positions[axis + 1 :])
            chosen_rows = Reindex(axis, tuple(index.tolist()), "chosen positions")
            nodes.append(replace(last, op=chosen_rows, inputs=(len(nodes) - 1,), positions=positions))
        where = where * len(index) + inverse
    return OutputPositions(replace(program, nodes=tuple(nodes)), (len(chosen),), where)


def _chosen(at: Positions, shape: tuple[int, ...]) -> Tensor:
    """Read the requested positions, shape (m, axes)."""
    example = [0] if len(shape) == 1 else [tuple(0 for _ in shape)]
    if not shape:
        raise InputError(
            "at chooses positions of an output that keeps positions, and the output of this module has none (positions that "
            "are flattened into the channels do not count). Leave at out."
        )
    try:
        chosen = torch.as_tensor(at).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputTypeError(f"at must be positions of the output, such as at={example}. Got {shown(at)}.") from error
    if chosen.numel() == 0:
        raise InputError(f"at must name at least one position, such as at={example}. Got {shown(at)}.")
    if chosen.is_floating_point() or chosen.is_complex() or chosen.dtype == torch.bool:
        raise InputTypeError(f"at must hold integers, such as at={example}. Got values of {chosen.dtype}.")
    if chosen.ndim == 1 and len(shape) == 1:
        chosen = chosen[:, None]
    if chosen.ndim != 2 or chosen.shape[1] != len(shape):
        raise InputError(
            f"at must give {len(shape)} integers for each position of an output of {shape} positions, such as at={example}. "
            f"Got a shape of {tuple(chosen.shape)}."
        )
    outside = (chosen < 0) | (chosen >= torch.tensor(shape))
    if bool(outside.any()):
        first = tuple(chosen[outside.any(1)][0].tolist())
        raise InputError(
            f"at must name positions of the output, which has {shape} of them, counted from 0. Got {first}, which is outside."
        )
    return chosen.to(torch.int64)
