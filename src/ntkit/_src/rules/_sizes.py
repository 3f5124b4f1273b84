"""Kernels between inputs of two sizes: sequences of different lengths, graphs of different numbers of nodes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from ntkit._src.program import Pair, Unpaired

from ._covariance import Moments
from ._engine import covariance
from ._plan import plan_of
from ._tiles import TILE_BYTES, Kernels, pair_bytes, ranges, tile_shape


def check_pair(pair: Pair) -> None:
    """Refuse operations that relate inputs of one size only."""
    for step in plan_of(pair.first).steps:
        if pair.keeps[step.index] is not None and not step.rule.sizes:
            sizes = step.node.positions, pair.second.nodes[step.index].positions
            if sizes[0] != sizes[1] or any(
                pair.first.nodes[read].positions != pair.second.nodes[read].positions for read in step.node.inputs
            ):
                raise Unpaired(step.node, f"it has no rule between inputs of {sizes[0]} and {sizes[1]} positions")


def gram_between(
    pair: Pair, own: tuple[Moments, Moments], ntk: bool, nngp: bool, count: Callable[[int], None] | None = None
) -> Kernels:
    """Compute Theta and K between two batches of different sizes whose moments are known, shape (n1, n2)."""
    first, second = own
    n1, n2 = len(first.like), len(second.like)
    dtype = first.like.dtype
    out = Kernels(*(first.like.new_zeros(n1, n2, dtype=dtype) if wanted else None for wanted in (ntk, nngp)))
    most = max(pair_bytes(program, pair.keeps, ntk) for program in (pair.first, pair.second))
    tile1, tile2 = tile_shape(n1, n2, max(1, TILE_BYTES // most), symmetric=False)
    for rows, columns in product(ranges(0, n1, tile1), ranges(0, n2, tile2)):
        sides = first.rows(rows.start, rows.stop), second.rows(columns.start, columns.stop)
        value = covariance(pair, *sides, ntk)
        for target, tile in ((out.ntk, value.ntk), (out.nngp, value.nngp)):
            if target is not None and tile is not None:
                target[rows.start : rows.stop, columns.start : columns.stop] = tile
        if count is not None:
            count(len(rows) * len(columns))
    return out
