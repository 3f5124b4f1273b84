"""The interface between the native engine and a family of operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from ntkit._src.program import Node, Op

from .. import _core
from .._plane import Offset, Part, Plane

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork

OpT = TypeVar("OpT", bound=Op)


class Family(Generic[OpT]):
    """Everything the native engine knows about one family of operations.

    A subclass overrides what differs from a linear operation that maps each plane to itself. ``index`` is a node of the program,
    ``op`` its operation.
    """

    reads_h: ClassVar[bool] = False
    """Whether it is nonlinear: then the planes before it hold H, not K."""

    reads_angle: ClassVar[bool] = False
    """Whether it reads the angle between two values, to which their sizes add nothing."""

    single_precision: ClassVar[bool] = True
    """Whether computing in float32 preserves the precision of float32 inputs."""

    rounds_h: ClassVar[bool] = False
    """Whether H after it is a difference of larger terms."""

    def missing(self, network: PlannedNetwork, index: int, op: OpT) -> str | None:
        """Return what the native engine lacks to run this operation; None if it lacks nothing."""
        return None

    def fuses(self, network: PlannedNetwork, index: int, op: OpT) -> bool:
        """Return whether it is computed together with the layer before it, which nothing else reads."""
        return False

    def homogeneous(self, op: OpT) -> bool:
        """Return whether r times its inputs give r times its output."""
        return True

    def may_be_negative(self, op: OpT, before: bool) -> bool:
        """Return whether K between two inputs may be negative, given whether that of its input may be."""
        return before

    def cache_entries(self, network: PlannedNetwork, index: int, op: OpT) -> Iterator[tuple[_core.Cached, int]]:
        """Return which cached data must be kept, and of which node."""
        return iter(())

    def cache_numbers(self, network: PlannedNetwork, what: _core.Cached, op: OpT) -> int:
        """Return how many numbers of cached data there are per position."""
        return 1

    def local(self, network: PlannedNetwork, index: int, op: OpT) -> bool:
        """Return whether an entry of its covariance depends on the same entry of its inputs' and on nothing else that moves."""
        return False

    whole: ClassVar[bool] = False
    """Whether it reads every K[p, p'] of its inputs at once rather than planes."""

    def emit_whole(self, emitter: Emitter, plane: Plane, op: OpT) -> None:
        """Emit the instructions that compute every K[p, p'] of its value at once, if it reads those of its inputs so."""
        raise NotImplementedError

    def stored_from(self, network: PlannedNetwork, index: int, what: _core.Cached) -> Plane:
        """Return the plane that cached data are computed from."""
        nodes = network.program.nodes
        source = nodes[index].inputs[-1] if self.made_before(what) else index
        return Plane(source, (0,) * len(nodes[source].positions), True)

    def made_before(self, what: _core.Cached) -> bool:
        """Return whether cached data are computed from the variances before the operation rather than after it."""
        return what == _core.Cached.DEVIATION

    def tiers(self, op: OpT) -> int:
        """Return the number of versions of different range; the engine uses the first whose range covers the inputs."""
        return 1

    def covered(self, op: OpT) -> str | None:
        """Return the range of inputs that all its versions together cover, in words; None if they cover every input."""
        return None

    def store(
        self, network: PlannedNetwork, index: int, op: OpT, what: _core.Cached, target: int
    ) -> _core.Store | _core.Weights:
        """Return the operation that stores cached data, beginning at index ``target``."""
        return _core.Store(size=network.size(index), what=what, target_at=target)

    def inputs(self, node: Node) -> tuple[int, ...]:
        """Return the nodes whose planes it reads."""
        return node.inputs

    def wrapped_axes(self, op: OpT) -> tuple[int, ...]:
        """Return the axes of the input along which windows wrap around."""
        return ()

    def sources(self, op: OpT, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        """Yield the offsets of the input's planes that the plane at ``offset`` is computed from.

        ``positions`` are the lengths of the input's axes.
        """
        yield offset

    def reads_between(self, network: PlannedNetwork, index: int, variances: bool, source: Offset) -> bool:
        """Return whether it reads H at an offset although its output, or the variance it computes (``variances``), is K."""
        return False

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: OpT) -> None:
        """Emit the instructions that compute a plane."""
        raise NotImplementedError
