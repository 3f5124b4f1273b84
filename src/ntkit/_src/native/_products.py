"""Inner products of vectors: matrix products in which an entry has the same bits whatever the number of inputs.

A library rounds the same entry differently in matrix products of another shape. So all have ``SIDE`` rows and columns, unless
there are few inputs: then a trial finds a smaller shape, and how to split the features, that give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Numbers = NDArray[Any]

SIDE = 512
_SIDES = (32, 128, SIDE)
_FEATURES = (384, 256, 192)  # how libraries split long sums: Intel's by 384, shorter ones in halves


@dataclass(frozen=True)
class Tiles:
    """The shape of all matrix products of a call: rows, columns, and of each of the network's inputs the features at a time."""

    rows: int
    columns: int
    features: tuple[int, ...]

    def empty(self, rows: int, columns: int, dtype: type) -> Numbers:
        """Allocate x . x' of some inputs, shape (inputs, tiles of rows, tiles of columns, rows, columns)."""
        # Not by torch: numpy requests large pages; page faults of small ones would take as long as the kernels of vectors.
        counts = len(self.features), whole(rows, self.rows) // self.rows, whole(columns, self.columns) // self.columns
        return np.empty((*counts, self.rows, self.columns), dtype)

    def multiply(self, first: Sequence[Numbers], second: Sequence[Numbers], products: Numbers, below: int) -> None:
        """Write x . x' to ``products``; the data of both sides are padded to whole tiles, one array for each input."""
        # ``below`` is the index of the first row minus that of the first column; tiles below the diagonal are left untouched.
        for left, right, product, features in zip(first, second, products, self.features, strict=True):
            count = min(product.shape[1], right.shape[0] // self.columns)
            columns = right[: count * self.columns].reshape(count, self.columns, -1)
            for number in range(min(product.shape[0], left.shape[0] // self.rows)):
                skipped = max(below // self.columns + number, 0)
                rows = left[number * self.rows : (number + 1) * self.rows]
                _multiply(rows, columns[skipped:], product[number, skipped:count], features)


def side(count: int) -> int:
    """Return the side of the smallest tiles for some inputs."""
    return _SIDES[0] if count <= _SIDES[0] else _SIDES[1] if count <= _SIDES[1] else SIDE


def tiles_for(rows: int, columns: int, features: tuple[int, ...], dtype: torch.dtype) -> Tiles:
    """Return the smallest tiles for some rows and columns that have the bits of the largest."""
    return _tiles(side(rows), side(columns), features, dtype, torch.get_num_threads())


def whole(count: int, tile: int) -> int:
    """Round a number of inputs up to whole tiles."""
    return -(-count // tile) * tile


@lru_cache(256)
def _tiles(rows: int, columns: int, features: tuple[int, ...], dtype: torch.dtype, threads: int) -> Tiles:
    shapes = ((a, b) for a in _SIDES for b in _SIDES if a >= rows and b >= columns)
    for shape in sorted(shapes, key=lambda shape: shape[0] * shape[1]):
        steps = [_features_at_a_time(*shape, count, dtype, threads) for count in features]
        if None not in steps:
            break
    return Tiles(*shape, tuple(step for step in steps if step is not None))


@lru_cache(256)
def _features_at_a_time(rows: int, columns: int, features: int, dtype: torch.dtype, threads: int) -> int | None:
    """Return how many features to multiply at a time for the bits of the largest tiles; None if no way is known."""
    if rows == columns == SIDE:
        return features
    kind = np.float32 if dtype == torch.float32 else np.float64
    left, right = np.random.default_rng(0).standard_normal((2, SIDE, features)).astype(kind)
    wanted, found = np.empty((1, SIDE, SIDE), kind), np.empty((1, rows, columns), kind)
    _multiply(left, right[None], wanted, features)
    for step in dict.fromkeys((features, *_FEATURES, -(-features // 2))):
        if 0 < step <= features:
            _multiply(left[:rows], right[None, :columns], found, step)
            if np.array_equal(found, wanted[:, :rows, :columns]):
                return step
    return None


def _multiply(left: Numbers, right: Numbers, out: Numbers, features: int) -> None:
    """Write left right[i]^T, shapes (m, k) and (b, n, k), to ``out``, some features at a time."""
    first, second, result = torch.from_numpy(left), torch.from_numpy(right).mT, torch.from_numpy(out)
    first = first.expand(right.shape[0], -1, -1)
    if features >= left.shape[1]:
        torch.bmm(first, second, out=result)
        return
    torch.bmm(first[..., :features], second[:, :features], out=result)
    for start in range(features, left.shape[1], features):
        result.baddbmm_(first[..., start : start + features], second[:, start : start + features])
