"""Gram matrices in tiles, between inputs or between all their positions: bounded memory, symmetric matrices computed once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from ntkit._src.common import Progress
from ntkit._src.program import Keeps, Program, entries

from ._covariance import Covariance, Moments
from ._engine import covariance, moments, read_data, self_covariance
from ._plan import plan_of

BYTE_BUDGET = 1 << 30  # bytes that the computation may hold in addition to its inputs and its result
TILE_BYTES = 8 << 20  # a tile that stays in the cache is several times faster than one that fills the budget


class Kernels(NamedTuple):
    """The two kernels of one pass; one that was not requested is None."""

    ntk: Tensor | None
    nngp: Tensor | None


def gram(
    program: Program,
    x1: Tensor,
    x2: Tensor | None,
    ntk: bool,
    nngp: bool,
    byte_budget: int = BYTE_BUDGET,
    progress: Progress | None = None,
) -> Kernels:
    """Compute Theta and K between two batches, shape (n1, n2), or of one batch with itself if ``x2`` is None."""
    n1, n2 = len(x1), len(x1 if x2 is None else x2)
    out = Kernels(*(x1.new_zeros(n1, n2, dtype=result_dtype(x1)) if wanted else None for wanted in (ntk, nngp)))
    data1 = read_data(program, x1)
    data2 = data1 if x2 is None else read_data(program, x2)
    tile_bytes = min(byte_budget, TILE_BYTES)
    pairs = max(1, tile_bytes // pair_bytes(program, program.cross_keeps, ntk))
    tile1, tile2 = tile_shape(n1, n2, pairs, symmetric=x2 is None)
    per_input = pair_bytes(program, program.self_keeps, ntk=False) + _stored_bytes(program)
    block = max(1, byte_budget // (2 * per_input))  # inputs of each side whose moments fit in the budget
    done, total = 0, n1 * n2 if x2 is not None else n1 * (n1 + 1) // 2
    for columns in ranges(0, n2, max(tile2, block - block % tile2)):
        second = _blockwise_moments(program, data2, columns, block)
        for band in ranges(0, n1 if x2 is not None else columns.stop, max(tile1, block - block % tile1)):
            first = second if x2 is None and band == columns else _blockwise_moments(program, data1, band, block)
            for rows, tile in product(ranges(band.start, band.stop, tile1), ranges(columns.start, columns.stop, tile2)):
                if x2 is None and tile.stop <= rows.start:
                    continue
                own = first.rows(rows.start - band.start, rows.stop - band.start)
                other = second.rows(tile.start - columns.start, tile.stop - columns.start)
                value = covariance(program, own, other, ntk=ntk)
                _write(out, value, rows, tile, symmetric=x2 is None)
                done += _count(rows, tile, symmetric=x2 is None)
                if progress is not None:
                    progress(done, total)
    return out


def diag(program: Program, x: Tensor, ntk: bool, byte_budget: int = BYTE_BUDGET) -> Tensor:
    """Compute Theta(x_i, x_i), or K(x_i, x_i) if ``ntk`` is False, shape (n,)."""
    out = x.new_zeros(len(x), dtype=result_dtype(x))
    data = read_data(program, x)
    block = max(1, byte_budget // (pair_bytes(program, program.diag_keeps, ntk) + _stored_bytes(program)))
    for rows in ranges(0, len(x), block):
        value = self_covariance(program, data.rows(rows.start, rows.stop), ntk)
        chosen = value.ntk if ntk else value.nngp
        if chosen is not None:
            out[rows.start : rows.stop] = chosen.to(out.dtype)
    return out


def position_gram(program: Program, x1: Tensor, x2: Tensor | None, ntk: bool, byte_budget: int = BYTE_BUDGET) -> Tensor:
    """Compute Theta or K between all positions of the outputs of two batches, shape (n1, n2, *axes, *axes)."""
    own1 = moments(program, read_data(program, x1))
    own2 = own1 if x2 is None else moments(program, read_data(program, x2))
    n1, n2 = len(x1), len(x1 if x2 is None else x2)
    axes = program.nodes[program.output].positions
    out = x1.new_zeros(n1, n2, *axes, *axes)
    columns = max(1, byte_budget // pair_bytes(program, program.cross_keeps, ntk))
    rank = len(axes)
    swap = (*range(rank, 2 * rank), *range(rank))  # K(x', x)[p', p] = K(x, x')[p, p']
    for i in range(n1):
        for start in range(i if x2 is None else 0, n2, columns):
            stop = min(n2, start + columns)
            value = covariance(program, own1.rows(i, i + 1), own2.rows(start, stop), ntk)
            tile = _apart(value, ntk, (1, stop - start, *axes, *axes))
            if tile is None:
                continue
            out[i : i + 1, start:stop] = tile.to(out.dtype)
            if x2 is None:
                other = tile[0].permute(0, *(1 + dim for dim in swap)).to(out.dtype)
                first = 1 if start == i else 0  # the pair of an input with itself is already written
                out[start + first : stop, i] = other[first:]
    return out


def prior_positions(program: Program, ntk: bool, like: Tensor) -> Tensor:
    """Compute Theta or K between all positions of the output of a program that begins with a prior, shape (*axes, *axes)."""
    data = Moments({(0, 0): like.new_zeros(1, dtype=torch.float64)})
    own = moments(program, data)
    axes = program.nodes[program.output].positions
    value = _apart(covariance(program, own, own, ntk), ntk, (1, 1, *axes, *axes))
    return like.new_zeros(*axes, *axes) if value is None else value[0, 0].to(like.dtype)


def result_dtype(x: Tensor) -> torch.dtype:
    """Return the input's dtype, or float64 for integers."""
    return x.dtype if x.is_floating_point() else torch.float64


def pair_bytes(program: Program, keeps: tuple[Keeps | None, ...], ntk: bool) -> int:
    """Estimate the memory that one pair of inputs takes while the program runs."""
    return plan_of(program).schedule(keeps).pair_bytes[ntk]


def _stored_bytes(program: Program) -> int:
    """Count the bytes of one input's own covariances that are kept for the whole computation."""
    plan = plan_of(program)
    kept = sum(entries(program.nodes[read].positions, keeps) for read, keeps in plan.demands.items())
    return 8 * (kept + sum(math.prod(program.nodes[read].positions) for read in plan.variances - plan.demands.keys()))


def _blockwise_moments(program: Program, data: Moments, rows: range, block: int) -> Moments:
    parts = [moments(program, data.rows(part.start, part.stop)) for part in ranges(rows.start, rows.stop, block)]
    return parts[0] if len(parts) == 1 else Moments.cat(parts)


def tile_shape(n1: int, n2: int, pairs: int, symmetric: bool) -> tuple[int, int]:
    if symmetric:  # squares of equal size, so that those below the diagonal are left out
        side = -(-n1 // -(-n1 // min(n1, math.isqrt(pairs))))
        return side, side
    tile1 = min(n1, max(1, math.isqrt(pairs)))
    tile2 = min(n2, max(1, pairs // tile1))
    return min(n1, max(1, pairs // tile2)), tile2


def ranges(start: int, stop: int, step: int) -> Iterator[range]:
    return (range(a, min(a + step, stop)) for a in range(start, stop, step))


def _count(rows: range, columns: range, symmetric: bool) -> int:
    """Count the entries of a tile that are on or above the diagonal, or all of them."""
    if not symmetric:
        return len(rows) * len(columns)
    return sum(max(0, columns.stop - max(columns.start, row)) for row in rows)


def _write(out: Kernels, value: Covariance, rows: range, columns: range, symmetric: bool) -> None:
    for target, tile in ((out.ntk, value.ntk), (out.nngp, value.nngp)):
        if target is None or tile is None:  # a network with nothing trained has a tangent kernel of zero
            continue
        part = tile.to(target.dtype).expand(len(rows), len(columns))
        if symmetric:
            # Each entry above the diagonal is written to both of its places, so that the matrix is symmetric to the bit.
            index1 = torch.arange(rows.start, rows.stop, device=part.device)[:, None]
            index2 = torch.arange(columns.start, columns.stop, device=part.device)[None, :]
            above = index1 <= index2
            if bool(above.all()):
                target[rows.start : rows.stop, columns.start : columns.stop] = part
                target[columns.start : columns.stop, rows.start : rows.stop] = part.T
            else:
                i, j = (index.expand_as(part)[above] for index in (index1, index2))
                target[i, j] = part[above]
                target[j, i] = part[above]
        else:
            target[rows.start : rows.stop, columns.start : columns.stop] = part


def _apart(value: Covariance, ntk: bool, shape: tuple[int, ...]) -> Tensor | None:
    """Move the positions of x before those of x'; None if nothing is trained and there is no tangent kernel."""
    k = value.ntk if ntk else value.nngp
    if k is None:
        return None
    axes = range(2, k.ndim)
    return k.permute(0, 1, *axes[::2], *axes[1::2]).expand(shape)
