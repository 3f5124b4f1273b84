"""What every operation of a program declares: what it reads of its inputs' covariance, and its finite form.

A value of the network is a random field over positions (pixels, tokens; none for vectors) whose channels are
exchangeable, so in the limit its distribution is described by a covariance K[p, p'] between the positions of two inputs.
Each op says, position axis by position axis, how much of its inputs' covariance it reads (:class:`Keep`), and what it
computes in a network of finite width, of which its covariance rule (``ntkit.rules``) is the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from torch import Tensor


class Keep(IntEnum):
    """What is kept of a covariance along one position axis: only K[p, p], or every K[p, p']; the value counts indices."""

    SAME = 1
    ALL = 2


Keeps = tuple[Keep, ...]
"""One :class:`Keep` per position axis; None in place of all of them means that nothing is kept."""

Values = tuple[Tensor, ...]
"""Values of nodes in a finite network, shape (n, *positions, channels); a length of one broadcasts."""

Weights = tuple[Tensor | None, ...]
"""Parameters of an operation in a finite network: its weight and its bias; None where it has none."""


@dataclass(frozen=True)
class Op:
    """Base of the operations."""

    selects: ClassVar[bool] = False
    """Whether every position of the output is a position of the input, or zero."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        """Return what must be kept of each input to compute ``keeps`` of the output; None: the input is not read."""
        return (keeps,)

    def needs_own(self, ranks: tuple[int, ...]) -> tuple[Keeps | None, ...]:
        """Return what the rule reads of K(x, x) of each input, given how many position axes each input has."""
        return (None,) * len(ranks)

    def reads_means(self, uncentred: int) -> bool:
        """Return whether the rule reads the channels' means of its inputs, ``uncentred`` of which are not centred."""
        return False

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Return the value in a finite network, shape (n, *positions, channels), from those of the inputs."""
        raise NotImplementedError

    def label(self) -> str:
        """Name the operation in tables."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Source(Op):
    """Base of the operations without inputs."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ()
