"""The interface between the reference engine and a family of operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from ntkit._src.program import Keeps, Node, Op, Program

from ._covariance import Covariance, Ends, Moments
from ._sketch import Draws, Features

OpT = TypeVar("OpT", bound=Op)

Window = tuple[range, ...]  # positions of a node, one range per axis
Prefixes = list[
    Callable[[Tensor], Tensor] | None
]  # the functions of ``Program.prefixes``, to which cropping adds others
Inputs = tuple[Covariance, ...]
Parts = tuple[Features, ...]


@dataclass(frozen=True, eq=False)
class Step(Generic[OpT]):
    """A node of a program, with what the plan found out about it."""

    index: int
    node: Node
    op: OpT
    rule: Rule[OpT]
    sources: tuple[Step[Any], ...] = field(default=(), repr=False)  # one for each of ``node.inputs``
    carries_h: bool = False  # whether to compute H: the inputs allow it, and an activation depends on it
    scales: bool = False  # whether r times the data give r times its values, so that H may be of r x and x'
    frees: tuple[int, ...] = ()  # the nodes that no later step reads

    def ops(self, ends: Ends) -> tuple[OpT, OpT]:
        """Return the operation for x and for x'."""
        one, other = ends.nodes(self.index, self.node)
        return one.op, other.op  # type: ignore[return-value]

    def positions(self, ends: Ends) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the lengths of the position axes of its value for x and for x'."""
        one, other = ends.nodes(self.index, self.node)
        return one.positions, other.positions

    def reads(self, keeps: Keeps | None) -> tuple[tuple[int, Keeps], ...]:
        """Return the nodes that it reads, and what it needs of them, if ``keeps`` is kept of its own covariance."""
        needs = () if keeps is None else zip(self.node.inputs, self.op.needs(keeps), strict=True)
        return tuple((read, needed) for read, needed in needs if needed is not None)


@dataclass(frozen=True)
class Cut:
    """An operation restricted to a window of its output, and the windows of its inputs that it reads."""

    op: Op
    reads: tuple[Window, ...]


class Rule(Generic[OpT]):
    """Everything the reference engine knows about one family of operations.

    A subclass names its operations (``class DenseRule(Rule[Dense], ops=(Dense,))``), which enters it in ``RULES``. It writes
    :meth:`covariance`, :meth:`mean` if its values may have a mean other than zero, and what else differs from the defaults.
    """

    reads_h: ClassVar[bool] = False  # whether it reads the H of its inputs even where it does not compute its own
    reads_ratio: ClassVar[bool] = False  # whether it takes the H of r x and x' although its values do not scale so
    keeps_h: ClassVar[bool] = False  # whether it computes the H of its output if its inputs have theirs
    local: ClassVar[bool] = False  # whether a position of the output reads only the same position of each input
    sizes: ClassVar[bool] = False  # whether x and x' may have different numbers of positions
    temporaries: ClassVar[int] = 3  # tensors of the size of its largest input or output that it allocates

    def __init_subclass__(cls, ops: tuple[type[Op], ...] = ()) -> None:
        for op in ops:
            assert op not in RULES, f"{op.__name__} has a rule already"
            RULES[op] = cls()

    def covariance(self, step: Step[OpT], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        """Return K and Theta of the output from those of the inputs.

        ``inputs`` are reduced to what ``op.needs(keeps)`` asks for, without those it asks nothing of; ``keeps`` is what to
        return of the output's covariance, and ``ends`` has the moments of both inputs of the network.
        """
        raise NotImplementedError

    def mean(self, step: Step[OpT], known: Moments) -> Tensor | None:
        """Return the channels' mean, shape (n, *positions), from the inputs' means in ``known``; None if it is zero.

        The engine calls it only for nodes that are not centred, and only if some operation reads means.
        """
        raise NotImplementedError

    def read(self, program: Program, node: Node, x: Tensor, dtype: torch.dtype) -> dict[tuple[int, int], Tensor]:
        """Return what it reads of a batch of data, by its key in ``Moments.data``."""
        return {}

    def reads_variance(self, op: OpT) -> bool:
        """Return whether it reads the variances K[p, p] of its inputs."""
        return False

    def gives_h(self, op: OpT) -> bool:
        """Return ``keeps_h``, unless that depends on the operation."""
        return self.keeps_h

    def scales(self, op: OpT, inputs: bool) -> bool:
        """Return whether r times the data give r times its values, given whether it is so for all its inputs."""
        return inputs

    def workspace(self, op: OpT, positions: tuple[int, ...], keeps: Keeps) -> int:
        """Count the entries that it holds for one pair of inputs beyond its inputs, its output and ``temporaries``."""
        return 0

    def crop(self, step: Step[OpT], window: Window, prefixes: Prefixes) -> Cut | None:
        """Return the operation restricted to a window of its output; None if it must be computed whole."""
        return Cut(step.op, (window,) * len(step.sources)) if self.local else None

    def random_features(self, step: Step[OpT], inputs: Parts, data: Moments, draws: Draws) -> Features:
        """Return the random features of the output from those of the inputs."""
        raise NotImplementedError

    def without_random_features(self, step: Step[OpT]) -> str | None:
        """Say why it has no random features; None if it has them."""
        return "it has no random features" if type(self).random_features is Rule.random_features else None


RULES: dict[type[Op], Rule[Any]] = {}
"""The rule of each operation."""
