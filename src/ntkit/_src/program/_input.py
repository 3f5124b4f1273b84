"""The data, learned vectors (shared by all inputs or looked up by integers), or a covariance in place of data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from torch import Tensor

from ._program import Op, Source, Values, Weights


@dataclass(frozen=True)
class Input(Source):
    """K = x . x' / C of the data, after the deterministic part of the network that comes before the first random layer."""

    prefix: int  # index into ``Program.prefixes``
    channel: int  # the dimension of the prefix's output with the C channels; 0 is the batch, the others are positions
    channels: int  # C

    def alike(self, other: Op) -> bool:
        return isinstance(other, Input) and replace(other, prefix=self.prefix) == self

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Move the channels of the prefix's output, ``inputs[0]``, last."""
        return inputs[0].movedim(self.channel, -1)


@dataclass(frozen=True, eq=False)
class Prior(Source):
    """A random input whose channels are independent Gaussians with a known covariance over positions."""

    def label(self) -> str:
        return "prior"


@dataclass(frozen=True, eq=False)
class StationaryPrior(Prior):
    """K[p, p'] = ``same`` where p = p' and ``other`` elsewhere, over axes of lengths ``positions``."""

    positions: tuple[int, ...]
    same: float | Tensor
    other: float | Tensor


@dataclass(frozen=True, eq=False)
class GivenPrior(Prior):
    """K[p, p'] as given: ``covariance`` of shape (P1, P2, ..., P1, P2, ...), the positions of x first."""

    covariance: Tensor


@dataclass(frozen=True)
class TableEntries:
    """What a table consists of, for its covariance with a table for inputs of another size."""

    values: Tensor | None  # (P, C), float64; None: drawn from N(0, 1)
    slopes: Tensor  # (P, m), derivatives of one channel with respect to entries of the parameters
    places: Tensor  # (m,), the numbers of these entries

    def covariance(self, other: TableEntries) -> Tensor:
        """Return the covariance of two tables, shape (P, P')."""
        if self.values is None or other.values is None:
            return self.tangent(other)
        return self.values @ other.values.T / self.values.shape[1]

    def tangent(self, other: TableEntries) -> Tensor:
        """Return the inner products of their derivatives, shape (P, P')."""
        same = (self.places[:, None] == other.places).to(self.slopes)
        return self.slopes @ same @ other.slopes.T


@dataclass(frozen=True)
class Table(Source):
    """A vector at every position, the same for all inputs: a class token, a table of positions. P counts all positions."""

    covariance: Tensor = field(compare=False)  # of its channels, shape (P, P)
    mean: Tensor | None = field(default=None, compare=False)  # of its channels, shape (P,); None: zero
    # Inner products of its derivatives with respect to its own parameters, shape (P, P); None if none is trained.
    tangent: Tensor | None = field(default=None, compare=False)
    entries: TableEntries | None = field(default=None, compare=False)  # None: for inputs of one size alone

    def alike(self, other: Op) -> bool:
        if not isinstance(other, Table) or self.entries is None or other.entries is None:
            return False
        kinds = [(table.mean is None, table.tangent is None) for table in (self, other)]
        return kinds[0] == kinds[1] and (self.entries.values is None) == (other.entries.values is None)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Return the vectors, ``weight`` (*positions, channels), for one input; they broadcast to all."""
        weight, _ = weights
        assert weight is not None
        return weight[None]


@dataclass(frozen=True)
class Lookup(Source):
    """An embedding of integers: rows of a table of standard normals, so K[p, p'] = 1 where both are the same row."""

    prefix: int  # index into ``Program.prefixes`` of the function that returns the integers, shape (n, *positions)
    rows: int  # of the table
    padding: int | None  # the row that is zero and not trained
    trained: bool

    def label(self) -> str:
        return "embedding"

    def alike(self, other: Op) -> bool:
        return isinstance(other, Lookup) and replace(other, prefix=self.prefix) == self

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Look up rows of ``weight`` (rows, channels); the padding row is not trained."""
        weight, _ = weights
        assert weight is not None
        index = inputs[0].round().long()
        value = weight[index]
        return value if self.padding is None else value.where(index[..., None] != self.padding, value.detach())
