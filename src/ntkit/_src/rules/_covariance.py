"""The state that rules transform: covariances between two inputs, and the moments of each input on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ntkit._src.program import Keep, Keeps


@dataclass(frozen=True)
class Covariance:
    """The covariance of one node between pairs of inputs.

    Attributes
    ----------
    nngp
        K. The dimensions of the pairs come first: (n1, n2) between two batches, (n,) for each input with itself; then for
        each position axis (P,) if only K[p, p] is kept, (P, P) if every K[p, p'] is.
    ntk
        Theta, of the same shape; None if it is zero (nothing trained yet) or not requested.
    keeps
        What is kept along each position axis.
    affine
        A, broadcastable to K, or None for zero: the tangent kernel of channel c is Theta + A u_c v_c, with u_c and v_c the
        channel's own values. A trained affine weight of a normalisation creates this term, which does not average out
        before an activation, whose derivative depends on the same u_c and v_c.
    h
        H = (q + q') / 2 - K, half the mean squared difference, of the shape of K; None if only K is known. The tangent kernel
        at a kink depends on the square root of the difference of nearby inputs; K has lost that difference to rounding, H has
        not. The data, linear layers, convolutions, rectifiers, normalisations of centred channels, sums, concatenations and
        operations that only move positions propagate H; any other operation may drop it, as pooling does, where H would itself
        be a difference of sums.
    ratio
        r, shape (n1, n2), or None for one: H is of r x and x', H = (r^2 q + q') / 2 - r K. Two inputs that are nearly parallel
        but of different size differ by little only after this scaling.
    """

    nngp: Tensor
    ntk: Tensor | None
    keeps: Keeps
    affine: Tensor | None = None
    h: Tensor | None = None
    ratio: Tensor | None = None

    @property
    def multiple(self) -> Tensor | None:
        """``ratio``, broadcastable to K; None without H."""
        return None if self.h is None or self.ratio is None else self.ratio[(...,) + (None,) * sum(self.keeps)]

    def without_h(self) -> Covariance:
        """Drop H."""
        return self if self.h is None and self.ratio is None else replace(self, h=None, ratio=None)

    def at_one(self, variances: tuple[Tensor, Tensor] | None) -> Covariance:
        """Make H that of x and x', H / r + (1 - r) (q - q' / r) / 2: nothing cancels if they are nearly parallel."""
        r = self.multiple
        if self.h is None or r is None:
            return replace(self, ratio=None)
        if variances is None:
            return self.without_h()
        q1, q2 = variances
        return replace(self, h=torch.where(r == 1, self.h, self.h / r + (1 - r) * (q1 - q2 / r) / 2), ratio=None)

    def settled(self) -> Covariance:
        """Average the tangent kernel over the channels: Theta + A K."""
        if self.affine is None:
            return self
        own = self.affine * self.nngp
        ntk = own if self.ntk is None else self.ntk + own
        return Covariance(self.nngp, ntk, self.keeps, h=self.h, ratio=self.ratio)

    @property
    def pair_dims(self) -> int:
        """2 between two batches, 1 for each input with itself."""
        return self.nngp.ndim - sum(self.keeps)

    def dims(self, axis: int) -> tuple[int, ...]:
        """Return which dimensions of ``nngp`` belong to a position axis: one or two."""
        start = self.pair_dims + sum(self.keeps[:axis])
        return tuple(range(start, start + self.keeps[axis]))

    def map(
        self,
        function: Callable[[Tensor], Tensor],
        keeps: Keeps | None = None,
        moves: bool = False,
        selects: bool = False,
    ) -> Covariance:
        """Apply a linear map of positions to K and Theta; A is unchanged if all positions share it.

        ``moves`` says that the map also applies to H: it takes means, or every new position is an old one. ``selects`` says
        that every new position is an old one or zero: then A moves along. Otherwise weights that differ between positions
        are averaged over, which is right unless an activation follows; tracing refuses one.
        """
        if self.affine is not None and self.affine.numel() > 1 and not selects:
            return self.settled().map(function, keeps, moves)
        ntk = None if self.ntk is None else function(self.ntk)
        new = self.keeps if keeps is None else keeps
        affine = None
        if self.affine is not None:
            shared = self.affine.numel() == 1
            affine = (
                self.affine.reshape((1,) * (self.pair_dims + sum(new)))
                if shared
                else function(self.affine.expand_as(self.nngp))
            )
        h = None if self.h is None or not moves else function(self.h)
        return Covariance(function(self.nngp), ntk, new, affine, h, self.ratio)

    def restrict(self, keeps: Keeps) -> Covariance:
        """Drop what ``keeps`` does not need: take the diagonal of every axis along which only K[p, p] is kept."""
        covariance = self
        for axis, keep in enumerate(keeps):
            if keep < covariance.keeps[axis]:
                covariance = covariance._diagonal(axis)
        return covariance

    def _diagonal(self, axis: int) -> Covariance:
        first, second = self.dims(axis)

        def take(k: Tensor) -> Tensor:
            return k.diagonal(dim1=first, dim2=second).movedim(-1, first)

        keeps = (*self.keeps[:axis], Keep.SAME, *self.keeps[axis + 1 :])
        ntk, affine, h = (None if value is None else take(value) for value in (self.ntk, self.affine, self.h))
        return Covariance(take(self.nngp), ntk, keeps, affine, h, self.ratio)


@dataclass
class Moments:
    """What the rules read of each single input; filled while the covariance of each input with itself is computed.

    Attributes
    ----------
    data
        The output for each prefix and channel dimension, channels moved last, shape (n, *positions, C); under channel
        dimension 0, the matrices over positions that a prefix computes, shape (n, Q, P).
    variance, mean
        For each node that some rule reads: K[p, p] and the channels' mean at p, shape (n, *positions). A node without
        a mean is centred.
    own
        For each node of which some rule reads every pair of positions: K(x, x), shape (n, P1, P1, P2, P2, ...).
    """

    data: dict[tuple[int, int], Tensor]
    variance: dict[int, Tensor] = field(default_factory=dict)
    mean: dict[int, Tensor] = field(default_factory=dict)
    own: dict[int, Tensor] = field(default_factory=dict)

    @property
    def like(self) -> Tensor:
        """Some of the data: its length, dtype and device are those of the batch."""
        return next(iter(self.data.values()))

    def rows(self, start: int, stop: int) -> Moments:
        """Return the moments of some of the inputs."""
        parts = vars(self).values()
        return Moments(*({key: value[start:stop] for key, value in part.items()} for part in parts))

    @staticmethod
    def cat(parts: list[Moments]) -> Moments:
        """Join the moments of several batches."""
        kinds = zip(*(vars(part).values() for part in parts), strict=True)
        return Moments(*({key: torch.cat([part[key] for part in kind]) for key in kind[0]} for kind in kinds))


@dataclass(frozen=True)
class Ends:
    """The moments of x and of x', and how many dimensions count pairs: 2 between two batches, 1 for each input with itself."""

    first: Moments
    second: Moments
    pair_dims: int

    def spread(self, values1: Tensor, values2: Tensor, keeps: Keeps) -> tuple[Tensor, Tensor]:
        """Reshape per-input values (n, *positions) so that they broadcast against a covariance that keeps ``keeps``."""
        return self._spread(values1, keeps, 0), self._spread(values2, keeps, 1)

    def _spread(self, values: Tensor, keeps: Keeps, side: int) -> Tensor:
        shape = [values.shape[0]]
        if self.pair_dims == 2:
            shape.insert(1 - side, 1)
        for size, keep in zip(values.shape[1:], keeps, strict=True):
            shape += [size] if keep is Keep.SAME else [size, 1] if side == 0 else [1, size]
        return values.reshape(shape)

    def variances(self, node: int, keeps: Keeps) -> tuple[Tensor, Tensor] | None:
        """Return a node's variances at both ends, reshaped by :meth:`spread`; None if they were not kept."""
        if node not in self.first.variance or node not in self.second.variance:
            return None
        return self.spread(self.first.variance[node], self.second.variance[node], keeps)

    def means(self, node: int, keeps: Keeps) -> tuple[Tensor, Tensor] | None:
        """Return a node's channel means at both ends, reshaped by :meth:`spread`; None if it is centred."""
        if node not in self.first.mean:
            return None
        return self.spread(self.first.mean[node], self.second.mean[node], keeps)
