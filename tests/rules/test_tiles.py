"""Tiles: what is reported, what fits, and that the pieces make up the whole."""

from itertools import pairwise

import pytest
import torch
from tests.cases import mlp, normal
from torch import nn

from ntkit._src.rules import gram
from ntkit._src.rules._tiles import _count, _stored_bytes, diag, pair_bytes, tile_shape
from ntkit._src.trace import GainRule, Tracer


def _program(module, shape):
    return Tracer(module, GainRule(b_std=0.3)).program(shape)


def _mlp():
    return _program(mlp(3, 8, 8, 1), (3,))


def _inputs(n, seed=0):
    return normal(n, 3, seed=seed)


@pytest.mark.parametrize("budget", [1, 500, 1000, 5000, 2**30])
@pytest.mark.parametrize("symmetric", [True, False])
def test_progress_counts_every_entry_once(symmetric, budget):
    program, x1, x2 = _mlp(), _inputs(7), None if symmetric else _inputs(5, seed=1)
    calls = []
    found = gram(
        program, x1, x2, ntk=True, nngp=True, byte_budget=budget, progress=lambda done, of: calls.append((done, of))
    )
    total = 7 * 8 // 2 if symmetric else 35
    assert {of for _, of in calls} == {total}
    done = [0] + [d for d, _ in calls]
    steps = [b - a for a, b in pairwise(done)]
    assert done[-1] == total and min(steps) > 0
    # A tile holds no more pairs than the budget allows.
    pairs = max(1, budget // pair_bytes(program, program.cross_keeps, True))
    assert max(steps) <= pairs
    whole = gram(program, x1, x2, ntk=True, nngp=True)
    torch.testing.assert_close(found.ntk, whole.ntk, rtol=1e-13, atol=0)
    torch.testing.assert_close(found.nngp, whole.nngp, rtol=1e-13, atol=0)


@pytest.mark.parametrize(("n1", "n2", "pairs", "shape"), [
    (10, 10, 1, (1, 1)), (10, 10, 9, (3, 3)), (10, 10, 12, (3, 4)), (2, 100, 50, (2, 25)), (100, 2, 50, (25, 2)),
    (10, 10, 1000, (10, 10)), (1, 7, 3, (1, 3)),
])  # fmt: skip
def test_tiles_are_square_where_they_can_be(n1, n2, pairs, shape):
    assert tile_shape(n1, n2, pairs, symmetric=False) == shape


@pytest.mark.parametrize(("n", "pairs", "side"), [
    (10, 1, 1), (10, 8, 2), (10, 9, 3), (10, 15, 3), (10, 35, 5), (24, 195, 12), (24, 1000, 24), (7, 17, 4), (1, 5, 1),
])  # fmt: skip
def test_tiles_of_a_symmetric_matrix(n, pairs, side):
    """Squares of equal size; those below the diagonal are left out."""
    assert tile_shape(n, n, pairs, symmetric=True) == (side, side)


def test_count_of_a_tile():
    for rows in (range(0, 4), range(2, 5), range(6, 9)):
        for columns in (range(0, 3), range(2, 5), range(4, 10), range(8, 9)):
            assert _count(rows, columns, False) == len(rows) * len(columns)
            assert _count(rows, columns, True) == sum(j >= i for i in rows for j in columns)


def test_bytes_of_a_pair():
    """Counted by hand: nothing of an image's positions is kept but the diagonal, until pooling needs all pairs of them."""
    program = _mlp()
    # One number per field: the input of an activation and its output, K, H and perhaps Theta, and twelve temporaries.
    assert pair_bytes(program, program.cross_keeps, ntk=False) == 8 * (4 + 12)
    assert pair_bytes(program, program.cross_keeps, ntk=True) == 8 * (6 + 12)
    assert _stored_bytes(program) == 8 * 3  # the variances that the two activations and the first bias read
    flat = _program(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 1)), (1, 3, 3))
    assert pair_bytes(flat, flat.cross_keeps, ntk=False) == 8 * 9 * (4 + 12)
    assert _stored_bytes(flat) == 8 * (9 + 9)  # read by the activation, and by the padding of the convolution
    pooled = _program(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)),
        (1, 3, 3),
    )
    assert pair_bytes(pooled, pooled.cross_keeps, ntk=False) == 8 * 81 * (4 + 12)


@pytest.mark.parametrize("ntk", [True, False])
@pytest.mark.parametrize("budget", [1, 400, 2**30])
def test_diagonal_in_blocks(ntk, budget):
    program, x = _mlp(), _inputs(6)
    whole = gram(program, x, None, ntk=ntk, nngp=not ntk)
    expected = (whole.ntk if ntk else whole.nngp).diagonal()
    torch.testing.assert_close(diag(program, x, ntk, byte_budget=budget), expected, rtol=1e-12, atol=0)
