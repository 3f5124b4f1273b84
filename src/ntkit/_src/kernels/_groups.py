"""Batches whose inputs differ in size: grouped by size, so that no padding is computed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ntkit._src.common import Progress, check_tensor, shown
from ntkit._src.program import Pair, Program, Unpaired, pair_programs
from ntkit._src.rules import Kernels, Moments, check_pair, gram_between, moments, read_data
from ntkit._src.trace import Arguments
from ntkit.errors import EngineError, InputError, InputTypeError, Problem, UnsupportedLayerError

from ._graphs import graph_arguments, graphs_in

if TYPE_CHECKING:
    from ._infinite_width import InfiniteWidth
    from ._infinite_width_kernel import Engine

Inputs = Tensor | Mapping[str, Tensor] | Sequence[Any]
"""A batch: a tensor (n, ...); a tuple or mapping of tensors (n, ...), the forward's arguments; or a list of n inputs.

An input in a list is a tensor without the batch, a mapping of such tensors, or a graph: edges (m, 2) and features (nodes,
channels), which reaches the forward as two arguments, the features and the adjacency matrix. Inputs of a list may differ in size.
Batches and graphs of PyTorch Geometric and DGL, nested tensors too.
"""


@dataclass(frozen=True, eq=False)
class Group:
    """Inputs of one size."""

    places: Tensor  # in the batch, shape (m,)
    x: Tensor  # (m, ...), or (m, size) packed if the forward has several arguments
    arguments: Arguments | None

    @property
    def size(self) -> tuple[Hashable, ...]:
        """What all its inputs have in common."""
        return self.arguments, tuple(self.x.shape[1:])


def is_plain(x: object) -> bool:
    """Return whether a batch is one tensor, all of whose inputs have one size."""
    return isinstance(x, Tensor) and not x.is_nested


def groups_of(x: Any, name: str = "x") -> list[Group]:
    """Read a batch as groups of inputs of one size, in the order in which they first occur."""
    if isinstance(x, Tensor):
        if not x.is_nested:
            return [Group(torch.arange(len(x)), x, None)]
        x = list(x.unbind())
    if isinstance(x, Mapping) or (isinstance(x, tuple) and not _foreign(x)):
        return [_whole(x, name)]
    if not isinstance(x, list):
        graphs = graphs_in(x, name)
        if graphs is None:
            check_tensor(name, x)
        x = [_Graph(graph) for graph in graphs or ()]
    if not x:
        raise InputError(f"{name} must have at least one input. Got an empty list.")
    found: dict[tuple[Any, ...], list[tuple[int, tuple[Tensor, ...]]]] = {}
    for place, value in enumerate(_unbatched(x, name)):
        names, tensors = value
        key = (names, tuple((tuple(t.shape), t.dtype) for t in tensors))
        found.setdefault(key, []).append((place, tensors))
    made = []
    for (names, shapes), members in found.items():
        places = torch.tensor([place for place, _ in members])
        stacked = [torch.stack(column) for column in zip(*(tensors for _, tensors in members), strict=True)]
        arguments = (
            None if names is None else Arguments(names, *(tuple(column) for column in zip(*shapes, strict=True)))
        )
        made.append(Group(places, stacked[0] if arguments is None else arguments.pack(stacked), arguments))
    if len({(group.x.dtype, group.x.device) for group in made}) > 1:
        kinds = sorted({str(group.x.dtype) for group in made})
        raise InputTypeError(f"all inputs of {name} must have one dtype and device. Got {', '.join(kinds)}.")
    return made


class _Graph(tuple[Tensor, Tensor]):
    """Features and adjacency matrix."""


def _foreign(x: tuple[Any, ...]) -> bool:
    """Return whether a named tuple is a graph."""
    return hasattr(x, "edge_index")


def _unbatched(x: Sequence[Any], name: str) -> list[tuple[tuple[str | None, ...] | None, tuple[Tensor, ...]]]:
    """Return the arguments of each input: their names (None for a single tensor) and tensors without the batch."""
    made: list[tuple[tuple[str | None, ...] | None, tuple[Tensor, ...]]] = []
    for place, value in enumerate(x):
        here = f"{name}[{place}]"
        if isinstance(value, Tensor):
            check_tensor(here, value)
            made.append((None, (value,)))
        elif isinstance(value, Mapping):
            for key, tensor in value.items():
                check_tensor(f"{here}[{key!r}]", tensor)
            made.append((tuple(value), tuple(value.values())))
        elif isinstance(value, _Graph):
            made.append(((None, None), value))
        elif isinstance(value, tuple) and len(value) == 2 and not _foreign(value):
            made.append(((None, None), graph_arguments(*value, here)))
        else:
            graphs = graphs_in(value, here)
            if graphs is None:
                raise InputTypeError(
                    f"{here} must be a tensor without the batch, a mapping of tensors, or a graph, (edges, features). "
                    f"Got {shown(value)}."
                )
            made += [((None, None), graph) for graph in graphs]
    return made


def _whole(x: Mapping[str, Tensor] | Sequence[Tensor], name: str) -> Group:
    """Read the arguments of a forward, each a tensor (n, ...)."""
    named = dict(x) if isinstance(x, Mapping) else dict(enumerate(x))
    for key, tensor in named.items():
        check_tensor(f"{name}[{key!r}]", tensor)
    rows = {key: len(tensor) if tensor.ndim else 0 for key, tensor in named.items()}
    if len(set(rows.values())) != 1 or 0 in rows.values():
        raise InputError(
            f"the arguments in {name} must be tensors with as many rows as there are inputs. Got {rows} rows. "
            "A list holds inputs one by one: [(edges, features), ...] for graphs."
        )
    names = tuple(key if isinstance(key, str) else None for key in named)
    tensors = list(named.values())
    arguments = Arguments(names, tuple(tuple(t.shape[1:]) for t in tensors), tuple(t.dtype for t in tensors))
    return Group(torch.arange(len(tensors[0])), arguments.pack(tensors), arguments)


class GroupedGram:
    """The kernels between two batches of groups: each pair of groups is one block."""

    def __init__(self, limit: InfiniteWidth, engine: Engine, ntk: bool, nngp: bool) -> None:
        self.limit, self.engine, self.ntk, self.nngp = limit, engine, ntk, nngp
        self._pairs: dict[tuple[Hashable, Hashable], Pair] = {}
        self._known: dict[tuple[int, Program], Moments] = {}  # by the number of a group and its program

    def gram(self, x1: Any, x2: Any, progress: Progress | None = None) -> Kernels:
        """Return Theta and K, shape (n1, n2)."""
        first = groups_of(x1, "x" if x2 is None else "x1")
        second = first if x2 is None else groups_of(x2, "x2")
        like1, like2 = first[0].x, second[0].x
        if (like1.dtype, like1.device) != (like2.dtype, like2.device):
            raise InputTypeError(
                "x1 and x2 must have the same dtype and device. "
                f"Got {like1.dtype} on {like1.device} and {like2.dtype} on {like2.device}."
            )
        n1, n2 = (sum(len(group.places) for group in groups) for groups in (first, second))
        dtype = like1.dtype if like1.is_floating_point() else torch.float64
        out = Kernels(*(like1.new_zeros(n1, n2, dtype=dtype) if wanted else None for wanted in (self.ntk, self.nngp)))
        done, total = 0, n1 * n2 if x2 is not None else n1 * (n1 + 1) // 2
        for i, one in enumerate(first):
            for j, other in enumerate(second):
                if x2 is None and j < i:
                    continue
                own = x2 is None and i == j
                block = self._block((i, one), (len(first) * (x2 is not None) + j, other), own)
                rows, columns = one.places.to(like1.device), other.places.to(like1.device)
                for target, value in zip(out, block, strict=True):
                    if target is None or value is None:
                        continue
                    target[rows[:, None], columns] = value.to(dtype)
                    if x2 is None and not own:
                        target[columns[:, None], rows] = value.to(dtype).T
                m1, m2 = len(rows), len(columns)
                done += m1 * (m1 + 1) // 2 if own else m1 * m2
                if progress is not None:
                    progress(done, total)
        return out

    def _block(self, one: tuple[int, Group], other: tuple[int, Group], own: bool) -> Kernels:
        (number1, first), (number2, second) = one, other
        if first.size == second.size:
            limit = self.limit.of_arguments(first)
            return limit._compute(first.x, None if own else second.x, self.engine, None, ntk=self.ntk, nngp=self.nngp)
        if self.engine == "native":
            raise EngineError(
                'the native engine needs inputs of one size. Write engine="auto", or pass them one size at a time.'
            )
        key = first.size, second.size
        if key not in self._pairs:
            self._pairs[key] = self._pair(first, second)
        pair = self._pairs[key]
        sides = (
            self._moments(number1, first, pair.own[0]),
            self._moments(number2, second, pair.own[1]),
        )
        return gram_between(pair, sides, self.ntk, self.nngp)

    def _moments(self, number: int, group: Group, program: Program) -> Moments:
        if (number, program) not in self._known:
            self.limit.of_arguments(group)._check_batches(group.x, None)
            self._known[number, program] = moments(program, read_data(program, group.x))
        return self._known[number, program]

    def _pair(self, first: Group, second: Group) -> Pair:
        programs, owners = [], []
        try:
            for group in (first, second):
                limit = self.limit.of_arguments(group)
                owners.append(limit.owners(tuple(group.x.shape[1:])))
                programs.append(limit._program(group.x.shape[1:], self.ntk))
            pair = pair_programs(programs[0], owners[0], programs[1], owners[1])
            check_pair(pair)
        except Unpaired as found:
            instead = "pool or average over positions in front of such layers; or pass inputs of one size at a time"
            raise UnsupportedLayerError((Problem(found.path, found.what, found.reason, instead),)) from found
        return pair


def grouped_diag(limit: InfiniteWidth, x: Any, of_group: Callable[[InfiniteWidth, Tensor], Tensor]) -> Tensor:
    """Return what a function gives for each group, shape (n,), in the order of the batch."""
    groups = groups_of(x)
    parts = [of_group(limit.of_arguments(group), group.x) for group in groups]
    out = parts[0].new_zeros(sum(len(part) for part in parts))
    for group, part in zip(groups, parts, strict=True):
        out[group.places.to(out.device)] = part
    return out
