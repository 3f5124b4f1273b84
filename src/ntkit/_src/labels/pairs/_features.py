"""The pair features of Chen, He and Su: ten measures of the similarity of two inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.linalg import svds
from torch import Tensor

from ntkit._src.common import serial_product

from ._pairs import PairProducts, Pairs, common_mean, l1_distances, row_moments

GEOMETRY = ("cosine", "inner", "norms", "squared distance", "L1 distance", "angle", "sine", "RBF", "correlation")
"""The features that depend only on the vectors, in the order of :func:`geometry`."""

Tile = tuple[slice, slice]
"""Rows and columns."""

_COMPONENTS = 5
_SMALL = 64
# Inner products of equal vectors miss their norm by about this many sqrt(d) eps.
_ROUNDING = 4.0


@dataclass(frozen=True)
class PairFeatures:
    r"""The features of section D.3 of Chen, He and Su (2020), with the statistics of the training inputs that they use.

    Of a pair x, x' (flattened): the base kernel; the cosine of the angle; :math:`x^T x'`; :math:`\|x\|\|x'\|`;
    :math:`\|x - x'\|_2^2`; :math:`\|x - x'\|_1`; the angle; its sine; the RBF :math:`e^{-\|x - x'\|^2/m}`, m the mean of
    :math:`\|x - x'\|^2` over all ordered training pairs; the Pearson correlation of the coordinates.

    A zero vector is orthogonal to everything: cosine 0, angle pi/2, sine 1. A constant vector correlates with nothing: 0.
    If m is zero the RBF is 1. Cosines within :math:`4 \sqrt d` rounding errors of 1 or -1 are set to these: the angle, the
    square root of the difference, would be pure rounding.
    """

    mean_square: float  # m of the inputs
    # With principal components, whose ten features follow; their kernel is `dense_kernel`, as the base takes only whole inputs:
    center: Tensor | None = None  # the mean of the training inputs, shape (d,)
    axes: Tensor | None = None  # shape (d, 5) or narrower if d or n is smaller; the largest entry of each is positive
    component_mean_square: float = 0.0  # m of the projected inputs

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features, in their order."""
        own = "kernel", *GEOMETRY
        return own if self.axes is None else (*own, *(f"{name} of components" for name in own))

    def of(self, pairs: Pairs) -> Callable[[Tile], list[Tensor]]:
        """Return the function from a tile of the pairs to its features, each of the shape of the tile."""
        whole, components = pairs.products, self._components(pairs)

        def features(tile: Tile) -> list[Tensor]:
            found = [pairs.k[tile], *geometry(whole.take(*tile), self.mean_square)]
            if components is not None:
                further = geometry(components(tile), self.component_mean_square)
                found += (one.to(pairs.k.dtype) for one in (dense_kernel(further), *further))
            return found

        return features

    def _components(self, pairs: Pairs) -> Callable[[Tile], PairProducts] | None:
        """Return the function from a tile to the products of the projected inputs, which are short and not stored."""
        if self.axes is None or self.center is None:
            return None
        center, axes = self.center.to(pairs.k.device), self.axes.to(pairs.k.device)
        first, second = (None if x is None else (x.flatten(1).double() - center) @ axes for x in (pairs.x1, pairs.x2))
        assert first is not None
        shift = common_mean(first, second)
        left, rows = row_moments(first, shift)
        others = first if second is None else second
        right, columns = (left, rows) if second is None else row_moments(others, shift)

        def products(tile: Tile) -> PairProducts:
            inner = serial_product(left[tile[0]], right[tile[1]])
            l1 = l1_distances(first[tile[0]], others[tile[1]])
            return PairProducts(inner, l1, shift, first.shape[1], rows.take(tile[0]), columns.take(tile[1]))

        return products


def tiles(pairs: Pairs, entries: int) -> list[Tile]:
    """Cut the pairs into tiles of so many entries, a row at least; without ``pairs.x2`` only on and right of the diagonal."""
    n1, n2 = pairs.k.shape
    found, start = [], 0
    while start < n1:
        first = start if pairs.x2 is None else 0
        stop = min(start + max(1, entries // (n2 - first)), n1)
        found.append((slice(start, stop), slice(first, n2)))
        start = stop
    return found


def fit_features(x: Tensor, components: bool) -> PairFeatures:
    """Compute the training statistics, inputs of shape (n, ...), that the features need, with or without principal components."""
    rows = x.flatten(1).double()
    center = rows.mean(0)
    centered = rows - center
    # The mean over all ordered pairs of ||x - x'||^2 is twice the mean of ||x - mean||^2.
    mean_square = 2 * float((centered * centered).sum(1).mean())
    if not components:
        return PairFeatures(mean_square)
    axes = _principal_axes(centered)
    projected = centered @ axes
    return PairFeatures(mean_square, center, axes, 2 * float((projected * projected).sum(1).mean()))


def geometry(products: PairProducts, mean_square: float) -> list[Tensor]:
    """Return the nine features of :data:`GEOMETRY`, each of the shape of the products."""
    d, s, rows, columns = products.dimension, products.shift, products.rows, products.columns
    sums = rows.shifted_sum[:, None] + columns.shifted_sum
    inner = products.inner + (s * sums + d * s * s)
    norms = rows.norm[:, None] * columns.norm
    cosine = torch.where(norms > 0, inner / torch.where(norms > 0, norms, 1), 0)
    near = 1 - _ROUNDING * d**0.5 * torch.finfo(cosine.dtype).eps
    cosine = torch.where(cosine >= near, 1, torch.where(cosine <= -near, -1, cosine))
    squares = rows.shifted_square[:, None] + columns.shifted_square
    distance = (squares - 2 * products.inner).clamp_min_(0)
    spreads = rows.spread[:, None] * columns.spread
    centered = products.inner - rows.shifted_sum[:, None] * columns.shifted_sum / d
    correlation = torch.where(spreads > 0, centered / torch.where(spreads > 0, spreads, 1), 0).clamp_(-1, 1)
    rbf = torch.exp(distance / -mean_square) if mean_square > 0 else torch.ones_like(distance)
    sine = ((1 - cosine) * (1 + cosine)).sqrt_()
    return [cosine, inner, norms, distance, products.l1, torch.acos(cosine), sine, rbf, correlation]


def dense_kernel(features: list[Tensor]) -> Tensor:
    r"""Return the tangent kernel of a two-layer ReLU network without biases from the features of :func:`geometry`.

    With the angle a: :math:`\Theta = x^T x' (\pi - a)/\pi + \|x\| \|x'\| (\sin a + (\pi - a) \cos a)/\pi`.
    """
    cosine, inner, norms, _, _, angle, sine, _, _ = features
    rest = torch.pi - angle
    return (inner * rest + norms * (sine + rest * cosine)) / torch.pi


def _principal_axes(centered: Tensor) -> Tensor:
    """Return the directions of largest variance, shape (d, 5) at most; the largest entry of each is positive."""
    count = min(_COMPONENTS, *centered.shape)
    if min(centered.shape) <= _SMALL:
        axes = torch.linalg.svd(centered, full_matrices=False).Vh[:count]
    else:
        start = np.ones(min(centered.shape))  # ARPACK otherwise starts at random
        axes = torch.from_numpy(svds(centered.cpu().numpy(), k=count, v0=start)[2].copy()).to(centered).flip(0)
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    signed: Tensor = axes * torch.where(largest < 0, -1.0, 1.0).to(axes)
    return signed.T.contiguous()
