"""The state that rules transform: covariances between two inputs, and the moments of each input on its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ntkit._src.program import Keep, Keeps, Node


@dataclass(frozen=True)
class Covariance:
    """The covariance of one node between pairs of inputs: (n1, n2, ...) between batches, (n, ...) for each input with itself.

    Each position axis adds (P,) to the shape if only K[p, p] is kept, (P, P) if every K[p, p'] is. The tangent kernel at a kink
    depends on the square root of the difference of nearby inputs, which K has lost to rounding and H has not. Any operation may
    drop H, as pooling does, where it would itself be a difference of sums.
    """

    nngp: Tensor  # K
    ntk: Tensor | None  # Theta, of the same shape; None if it is zero (nothing trained yet) or not requested
    keeps: Keeps  # what is kept along each position axis
    # A, broadcastable to K: the tangent kernel of channel c is Theta + A u_c v_c, u_c and v_c being the channel's values, where a
    # normalisation has a trained weight. An activation's derivative depends on these values, so the term must be kept apart.
    affine: Tensor | None = None
    h: Tensor | None = (
        None  # H = (q + q') / 2 - K, half the mean squared difference, of the shape of K; None if unknown
    )
    # r, shape (n1, n2), None for one: H is of r x and x', (r^2 q + q') / 2 - r K, for nearly parallel inputs of different size.
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
        """Apply a linear map of positions to K and Theta; to H too if it ``moves``: takes means, or new positions are old ones.

        If it ``selects``, every new position is an old one or zero, and A moves along; otherwise A, if it differs between
        positions, is averaged over, which is right unless an activation follows; tracing refuses one.
        """
        if self.affine is not None and self.affine.numel() > 1 and not selects:
            return self.settled().map(function, keeps, moves)
        ntk = None if self.ntk is None else function(self.ntk)
        new = self.keeps if keeps is None else keeps
        affine = self.affine
        if affine is not None:
            shared, ones = affine.numel() == 1, (1,) * (self.pair_dims + sum(new))
            affine = affine.reshape(ones) if shared else function(affine.expand_as(self.nngp))
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
    """What the rules read of each single input; filled while the covariance of each input with itself is computed."""

    # By prefix and channel dimension, channels last, (n, *positions, C); under dimension 0 matrices of a prefix, (n, Q, P).
    data: dict[tuple[int, int], Tensor]
    variance: dict[int, Tensor] = field(default_factory=dict)  # K[p, p] by node, shape (n, *positions)
    mean: dict[int, Tensor] = field(default_factory=dict)  # of the channels, likewise; a node without one is centred
    own: dict[int, Tensor] = field(default_factory=dict)  # K(x, x), shape (n, P1, P1, P2, P2, ...)

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
    others: tuple[Node, ...] | None = None  # the nodes for x' if it has another size than x; rules get those for x

    def nodes(self, index: int, node: Node) -> tuple[Node, Node]:
        """Return a node for x and for x', which differ in what depends on the inputs' sizes."""
        return node, node if self.others is None else self.others[index]

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
