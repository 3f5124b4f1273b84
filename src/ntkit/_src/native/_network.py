"""A program from the native engine's view: whether it can run, what planes hold, and which cached data of each input it keeps.

Planes hold H = (q + q') / 2 - K where a nonlinear operation follows, because H does not cancel for nearby inputs, and K in the
linear layers at the end. Both are linear in K, so sums and convolutions treat them the same, except in the padding: there one
of the two values is zero, and H is half the variance of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from ntkit._src.program import Conv, Dense, Normalize, Program

from . import _core
from ._constants import UnknownMeans, with_constants
from ._rescaling import scaling, with_rescaling
from .families import Data, Rescale, data_size, family_of, known_family, largest_bias

_MOST_NODES = 400  # planning recurses through them
_MOST_ROWS = 64  # positions of a value that is computed as a whole covariance
_BLOCKS = 32


def unsupported(program: Program) -> str | None:
    """Return which operation the native engine has no instruction for; None if it has all."""
    if len(program.nodes) > _MOST_NODES:
        return f"more than {_MOST_NODES} operations"
    network = PlannedNetwork(program)
    try:
        _ = network.program
    except UnknownMeans:
        return "means of channels"
    for index, node in enumerate(network.program.nodes):
        if len(node.positions) > _core.AXES:
            return f"{node.path}: more than {_core.AXES} position axes"
        family = family_of(node.op)
        missing = node.op.label() if family is None else family.missing(network, index, node.op)
        if missing is not None:
            return f"{node.path}: {missing}"
    return None


def single_precision(program: Program) -> bool:
    """Return whether float32 inputs may be processed in single precision."""
    # They may where every activation is of the ReLU family and nothing is multiplied or normalised: there H carries small
    # differences through the whole network, and scaling an input scales every value, once the biases are scaled along.
    return all(known_family(node.op).single_precision for node in program.nodes)


def ranges(program: Program) -> tuple[str, ...]:
    """Name the operations that cover a limited range of inputs, such as "1 (tanh): standard deviations up to 2"."""
    found = ((node, known_family(node.op).covered(node.op)) for node in program.nodes)
    return tuple(f"{node.path} ({node.op.label()}): {words}" for node, words in found if words is not None)


@dataclass(frozen=True)
class PlannedNetwork:
    """What all tapes of one program have in common."""

    traced: Program  # the operations
    tier: int = 0  # which version of activations that have several; see :meth:`Family.tiers`
    blocks: int = _BLOCKS  # of pairs that run at once in networks of vectors

    @cached_property
    def program(self) -> Program:
        """The operations, with the changes of scale between them."""
        return with_rescaling(self._scaled_alike)

    @cached_property
    def _scaled_alike(self) -> Program:
        return with_constants(self.traced)

    @cached_property
    def rewritten(self) -> bool:
        """Whether operations are others than those that were traced, changes of scale aside."""
        ops = [node.op for node in self.program.nodes if not isinstance(node.op, Rescale)]
        traced = [node.op for node in self.traced.nodes]
        return len(ops) != len(traced) or any(a is not b for a, b in zip(ops, traced, strict=True))

    @cached_property
    def scaling(self) -> tuple[bool, ...]:
        """Whether the values of each node scale along with the data."""
        return scaling(self.program)

    @cached_property
    def rescales(self) -> bool:
        """Whether the data have a scale of their own, up to where values stop scaling along."""
        return self.program is not self._scaled_alike

    @property
    def ratio_at(self) -> int:
        """Where the ratio of the common scale to that of the data is in cached data."""
        return 2

    @property
    def units(self) -> int:
        """How many cached numbers come first: the unit and, if the data have a scale of their own, that scale and their ratio."""
        return 3 if self.rescales else 1

    def unit_at(self, index: int) -> int:
        """Return where cached data say what the value one becomes at a node."""
        return 1 if self.rescales and self.scaling[index] else 0

    @cached_property
    def tiers(self) -> int:
        """Number of versions; one if no activation has several."""
        return max(known_family(node.op).tiers(node.op) for node in self.program.nodes)

    @cached_property
    def readers(self) -> list[list[int]]:
        """Which nodes read each node."""
        readers: list[list[int]] = [[] for _ in self.program.nodes]
        for index, node in enumerate(self.program.nodes):
            for read in dict.fromkeys(node.inputs):
                readers[read].append(index)
        return readers

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """The nodes that read data, in the order of the data."""
        return tuple(index for index, node in enumerate(self.program.nodes) if isinstance(node.op, Data))

    @cached_property
    def layers(self) -> tuple[int, ...]:
        """The nodes that have gains."""
        return tuple(index for index, node in enumerate(self.program.nodes) if isinstance(node.op, (Conv, Dense)))

    @cached_property
    def data_sizes(self) -> tuple[int, ...]:
        """How many numbers per input each of the ``inputs`` reads."""
        return tuple(data_size(self.program, self.program.nodes[index]) for index in self.inputs)

    @cached_property
    def reads_h(self) -> tuple[bool, ...]:
        """Whether each node is nonlinear, so that it reads H."""
        return tuple(known_family(node.op).reads_h for node in self.program.nodes)

    @cached_property
    def linear_after(self) -> tuple[bool, ...]:
        """Whether only linear operations follow each node, so that its planes hold K."""
        linear = [True] * len(self.program.nodes)
        for index in reversed(range(len(linear))):
            linear[index] = all(linear[reader] and not self.reads_h[reader] for reader in self.readers[index])
        return tuple(linear)

    @cached_property
    def nonlinear_before(self) -> tuple[bool, ...]:
        """Whether a nonlinear operation comes before each node, so that its H is not that of the data."""
        found: list[bool] = []
        for node in self.program.nodes:
            found.append(any(found[read] or self.reads_h[read] for read in node.inputs))
        return tuple(found)

    @cached_property
    def normalises(self) -> bool:
        """Whether it has normalisations: then inputs are not scaled, and those that differ only by a factor become equal."""
        return any(isinstance(node.op, Normalize) for node in self.program.nodes)

    @cached_property
    def rounded(self) -> tuple[bool, ...]:
        """Whether H of each node may be rounded like the variances, rather than relative to itself."""
        found: list[bool] = []
        for index, node in enumerate(self.program.nodes):
            by_itself = self.normalises or (self.rescales and self.scaling[index])
            rounds = known_family(node.op).rounds_h if by_itself else True
            found.append(not self.single_precision and (rounds or any(found[read] for read in node.inputs)))
        return tuple(found)

    @cached_property
    def cyclic(self) -> tuple[tuple[bool, ...], ...]:
        """Along which axes windows that wrap around read each node: there, offsets are taken modulo the length."""
        found = [[False] * len(node.positions) for node in self.program.nodes]
        for node in self.program.nodes:
            for axis in known_family(node.op).wrapped_axes(node.op):
                found[node.inputs[0]][axis] = True
        return tuple(map(tuple, found))

    @cached_property
    def fused(self) -> frozenset[int]:
        """The activations that are computed together with the layer before them."""
        nodes = enumerate(self.program.nodes)
        return frozenset(index for index, node in nodes if known_family(node.op).fuses(self, index, node.op))

    @cached_property
    def negative(self) -> tuple[bool, ...]:
        """Whether K between two inputs may be negative, for each node."""
        found: list[bool] = []
        for node in self.program.nodes:
            found.append(known_family(node.op).may_be_negative(node.op, any(found[read] for read in node.inputs)))
        return tuple(found)

    @cached_property
    def cache(self) -> dict[tuple[_core.Cached, int], int]:
        """The cached data of each input: what, of which node, and at which number it begins."""
        nodes = self.program.nodes
        wanted: dict[tuple[_core.Cached, int], None] = {}
        for index, node in enumerate(nodes):
            wanted |= dict.fromkeys(known_family(node.op).cache_entries(self, index, node.op))
            readers = self.readers[index]
            if not self.linear_after[index] and any(self.linear_after[r] and not self.reads_h[r] for r in readers):
                wanted[_core.Cached.HALF, index] = None  # where planes of H end, K is computed from them
        starts, total = {}, self.units
        for what, index in wanted:
            starts[what, index] = total
            total += self.cache_numbers(what, index)
        return starts

    def cache_at(self, what: _core.Cached, index: int) -> int:
        """Return where cached data begin; ``_core.NOTHING`` if they are not kept."""
        return self.cache.get((what, index), _core.NOTHING)

    @cached_property
    def cache_size(self) -> int:
        """How many numbers of cached data there are per input."""
        return self.units + sum(self.cache_numbers(what, index) for what, index in self.cache)

    def cache_numbers(self, what: _core.Cached, index: int) -> int:
        """Return how many numbers cached data of a node take."""
        node = self.program.nodes[index]
        if what == _core.Cached.WEIGHTS:
            return prod(node.positions) ** 2
        return known_family(node.op).cache_numbers(self, what, node.op) * prod(node.positions)

    @cached_property
    def single_precision(self) -> bool:
        """Whether inputs may be scaled to norm one and processed in single precision."""
        return single_precision(self.program)

    @property
    def bias(self) -> float:
        """The largest variance of a bias relative to that of the same layer's weights."""
        return largest_bias(self.program)

    @cached_property
    def by_rows(self) -> tuple[bool, ...]:
        """Whether the whole covariance of each node is wanted and computed entry by entry from those of its inputs."""
        nodes = self.program.nodes
        wanted, found = [False] * len(nodes), [False] * len(nodes)
        for index in reversed(range(len(nodes))):
            if not 1 < prod(nodes[index].positions) <= _MOST_ROWS:  # larger ones leave the cache between two operations
                continue
            readers = [(reader, known_family(nodes[reader].op)) for reader in self.readers[index]]
            wanted[index] = any(
                (family.whole and index in family.inputs(nodes[r])) or found[r] for r, family in readers
            )
            found[index] = wanted[index] and known_family(nodes[index].op).local(self, index, nodes[index].op)
        return tuple(found)

    @property
    def windows(self) -> bool:
        """Whether cached data must match the arithmetic between two inputs to the bit: sums inside a pooling window."""
        return any(what == _core.Cached.INSIDE for what, _ in self.cache)

    @cached_property
    def batch(self) -> int:
        """How many blocks of pairs run at once: more than one if no value has positions."""
        return 1 if any(node.positions for node in self.program.nodes) else self.blocks

    def size(self, index: int) -> list[int]:
        """Return the lengths of a node's axes in the core: three, the last contiguous; missing ones come first."""
        if self.batch > 1:
            return [1, 1, self.batch]
        positions = self.program.nodes[index].positions
        return [*[1] * self.first_axis(index), *positions]

    def length_before(self, index: int, axis: int) -> int:
        """Return the length of an axis of the value that a node reads."""
        nodes = self.program.nodes
        return nodes[nodes[index].inputs[0]].positions[axis]

    def first_axis(self, index: int) -> int:
        """Return the core's axis that corresponds to a node's first axis."""
        return _core.AXES - len(self.program.nodes[index].positions)
