"""Values that occur while a module is traced, and what each tensor dimension of a field enumerates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

_WEIGHTS = ("weight", "in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
_RECURRENT = ("weight_ih", "weight_hh")
BATCH = -2
CHANNEL = -1

Dims = tuple[tuple[int, ...], ...]
"""For each tensor dimension the atoms it enumerates, slowest first: BATCH, CHANNEL, or the number of a position axis."""


@dataclass(frozen=True)
class Info:
    """What is known about a node's value."""

    why_not: str  # why its channels are not Gaussian; empty if they are, so that an activation may follow
    # Layers and activations whose randomness it carries since the last fresh weights; values that share none are independent.
    sources: frozenset[int]
    # A trained weight multiplies it: one per channel "whole", per position too "positions", only a "part", or none "".
    affine: str = ""

    @property
    def gaussian(self) -> bool:
        """Whether its channels are Gaussian."""
        return not self.why_not


@dataclass(frozen=True)
class Block:
    """Some channels of a field, all with the same distribution."""

    node: int  # of the program, with their covariance
    width: int  # channels in the module; only ratios of widths matter in the limit
    # Position axes, after the shared ones, in only this block's channel dimension: a flattened operand of torch.cat.
    merged: tuple[int, ...] = ()


@dataclass(frozen=True)
class Field:
    """A random tensor: exchangeable channels at every position."""

    blocks: tuple[Block, ...]  # its channels, concatenated
    positions: tuple[int, ...]  # lengths of the position axes that all blocks share
    dims: Dims  # which atoms each tensor dimension enumerates
    channels: int  # length of the channel atom: the widths of the blocks times their merged positions
    batch: int  # size in the traced example
    # Index of channel entry i among the blocks (channels slowest, then merged positions); None for entry i itself.
    order: Tensor | None = field(default=None, compare=False)

    def size(self, atom: int) -> int:
        """Return the length of an atom."""
        return self.batch if atom == BATCH else self.channels if atom == CHANNEL else self.positions[atom]

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(math.prod(self.size(atom) for atom in dim) for dim in self.dims)

    def core(self, dim: int) -> tuple[int, ...]:
        """Return the atoms of a dimension without position axes of length one."""
        return tuple(atom for atom in self.dims[dim] if atom < 0 or self.positions[atom] > 1)

    @property
    def channel_dim(self) -> int:
        """The tensor dimension that holds the channels."""
        return next(i for i, dim in enumerate(self.dims) if CHANNEL in dim)

    def axis(self, dim: int) -> int | None:
        """Return the position axis of a dimension, or None if it is not exactly one."""
        atoms = self.core(dim) or self.dims[dim]
        return atoms[0] if len(atoms) == 1 and atoms[0] >= 0 else None

    def with_length(self, axis: int, *sizes: int) -> tuple[int, ...]:
        """Return the lengths of the position axes with other ones in place of one axis."""
        return (*self.positions[:axis], *sizes, *self.positions[axis + 1 :])

    def with_dims(self, dims: Sequence[Sequence[int]]) -> Field:
        """Return the same field viewed with other tensor dimensions."""
        return replace(self, dims=tuple(tuple(dim) for dim in dims))

    def squeeze(self, dim: int) -> Field:
        """Drop a dimension of length one; its atoms join its neighbour."""
        dims = list(self.dims)
        atoms = dims.pop(dim)
        target = max(dim - 1, 0)
        dims[target] = dims[target] + atoms if dim > 0 else atoms + dims[target]
        return self.with_dims(dims)

    def unsqueeze(self, dim: int) -> Field:
        """Add a dimension of length one."""
        dims = list(self.dims)
        dims.insert(dim % (len(dims) + 1), ())
        return self.with_dims(dims)

    def reshape(self, shape: Sequence[int]) -> Field | None:
        """Regroup the dimensions; None if a new dimension would split an atom."""
        atoms = [atom for dim in self.dims for atom in dim]
        dims: list[tuple[int, ...]] = []
        for length in shape:
            group: list[int] = []
            filled = 1
            while atoms and filled < length:
                atom = atoms.pop(0)
                group.append(atom)
                filled *= self.size(atom)
            if filled != length:
                return None
            if length == 1 and atoms and self.size(atoms[0]) == 1 and atoms[0] != BATCH:
                group.append(atoms.pop(0))
            dims.append(tuple(group))
        if any(self.size(atom) != 1 for atom in atoms) or not dims:
            return None
        dims[-1] += tuple(atoms)
        return self.with_dims(dims)


@dataclass(frozen=True)
class Data:
    """A value that depends only on the input."""

    value: Any  # on the traced example: a tensor, or several of them
    node: object  # in the traced graph


@dataclass(frozen=True)
class Derived:
    """What a matcher computes from data: a function of a node of the traced graph."""

    node: object
    function: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Weight:
    """A parameter of the module."""

    path: str  # such as ``"blocks.0.weight"``
    parameter: Tensor  # or the result if something computes it
    computed_by: str = ""  # from other parameters, so that its distribution is unknown; empty for a plain parameter
    remedy: str = ""  # what makes it plain again

    @property
    def layer(self) -> str:
        """The path of the layer that it belongs to, as used in ``overrides``."""
        owner, _, name = self.path.rpartition(".")
        return owner if owner and (name in _WEIGHTS or name.startswith(_RECURRENT)) else self.path

    @property
    def trained(self) -> bool:
        """Whether it is trained."""
        return self.parameter.requires_grad


@dataclass(frozen=True)
class Computed:
    """A tensor computed from trained parameters alone."""

    value: Any  # at present
    compute: Callable[[Callable[[Weight], Tensor]], Tensor]  # from the values of the parameters
    weights: tuple[Weight, ...]
    random: bool = False  # they are embedding tables, drawn from N(0, 1), not parameters with their own values


@dataclass(frozen=True)
class Unknown:
    """The result of a refused operation, about which nothing is known."""


def concrete(value: Any) -> Any:
    """Return the present value of data and parameters, and anything else as it is."""
    if isinstance(value, (Data, Computed)):
        return value.value
    return value.parameter if isinstance(value, Weight) else value


_FIRST = -1_000_000  # labels of ranges count down from here, distinct from those of nodes and of the data


@dataclass(frozen=True)
class _Range:
    """A range of the channels of a source: the uncut source, its width, and the range."""

    root: int
    width: int
    start: int
    stop: int


@dataclass
class ChannelSources:
    """Splits sources where channels are split, in every node that carries them.

    Channel i of a node carries channel i of each of its sources: what mixes channels (a layer with weights) is a new source.
    """

    _ranges: dict[int, _Range] = field(default_factory=dict)
    _cuts: int = 0

    def part(self, info: list[Info], node: int, start: int, stop: int, width: int) -> frozenset[int]:
        """Return the sources of a range of a node's channels; ``info`` is updated to name the split sources everywhere."""
        kept: set[int] = set()
        for root, labels in self._by_root(info[node].sources, width).items():
            ranges = [self._ranges[label] for label in labels if label in self._ranges]
            if root < 0 and not ranges:
                kept |= labels  # the data: all parts depend on each other
                continue
            offset = min(piece.start for piece in ranges)
            covered = max(piece.stop for piece in ranges) - offset
            if sum(piece.stop - piece.start for piece in ranges) != width or covered != width:
                kept |= labels  # overlapping parts of one source: it is unknown which channel is which
                continue
            for boundary in (offset + start, offset + stop):
                self._cut(info, root, boundary)
            kept |= {
                label
                for label, piece in self._ranges.items()
                if piece.root == root and offset + start <= piece.start and piece.stop <= offset + stop
            }
        return frozenset(kept)

    def _by_root(self, sources: frozenset[int], width: int) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for label in sources:
            if label not in self._ranges and label >= 0:
                self._ranges[label] = _Range(label, width, 0, width)
            known = self._ranges.get(label)
            found.setdefault(label if known is None else known.root, set()).add(label)
        return found

    def _cut(self, info: list[Info], root: int, boundary: int) -> None:
        """Replace the label whose range contains a boundary by two labels."""
        for label, piece in list(self._ranges.items()):
            if piece.root != root or not piece.start < boundary < piece.stop:
                continue
            del self._ranges[label]
            halves = _FIRST - 2 * self._cuts, _FIRST - 2 * self._cuts - 1
            self._cuts += 1
            self._ranges[halves[0]] = replace(piece, stop=boundary)
            self._ranges[halves[1]] = replace(piece, start=boundary)
            for index, known in enumerate(info):
                if label in known.sources:
                    info[index] = replace(known, sources=(known.sources - {label}) | set(halves))
            return
