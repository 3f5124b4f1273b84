"""Matrix products of any number of vectors have the bits of the largest tiles."""

import numpy as np
import pytest
import torch

from ntkit._src.native._products import SIDE, Tiles, side, tiles_for, whole


def products(tiles, first, second):
    """x . x' of one input by tiles, shape (rows, columns)."""
    padded = []
    for x, tile in ((first, tiles.rows), (second, tiles.columns)):
        padded.append(np.zeros((whole(len(x), tile), x.shape[1]), x.dtype))
        padded[-1][: len(x)] = x
    found = tiles.empty(len(first), len(second), first.dtype.type)
    tiles.multiply([padded[0]], [padded[1]], found, -len(first))
    return found[0].swapaxes(1, 2).reshape(whole(len(first), tiles.rows), -1)[: len(first), : len(second)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("features", [1, 16, 100, 300, 784])
@pytest.mark.parametrize("sizes", [(1, 1), (10, 10), (3, 100), (100, 3), (2, 600)])
def test_few_vectors_have_the_bits_of_many(sizes, features, dtype):
    kind = np.float32 if dtype == torch.float32 else np.float64
    first, second = (np.random.default_rng(n).standard_normal((n, features)).astype(kind) for n in sizes)
    small = products(tiles_for(*sizes, (features,), dtype), first, second)
    assert np.array_equal(small, products(Tiles(SIDE, SIDE, (features,)), first, second))
    np.testing.assert_allclose(small, first.astype(float) @ second.T.astype(float), rtol=0, atol=1e-4 * features**0.5)


def test_tiles_are_small_where_a_trial_shows_the_same_bits():
    assert [side(n) for n in (1, 32, 33, 128, 129, 5000)] == [32, 32, 128, 128, SIDE, SIDE]
    tiles = tiles_for(700, 700, (5, 8), torch.float64)
    assert (tiles.rows, tiles.columns, tiles.features) == (SIDE, SIDE, (5, 8))
