"""The kernel between positions of the output: blocks of pairs of inputs, each with all pairs of positions."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import Program

from ._covariance import Covariance, Moments
from ._engine import covariance, moments, read_data
from ._tiles import BYTE_BUDGET, pair_bytes

__all__ = ["position_gram", "prior_positions"]


def position_gram(program: Program, x1: Tensor, x2: Tensor | None, ntk: bool, byte_budget: int = BYTE_BUDGET) -> Tensor:
    """Compute Theta or K between all positions of the outputs of two batches, shape (n1, n2, *axes, *axes).

    The axes are those of the program's last node; for a batch with itself (``x2`` None) each pair is computed once.
    """
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


def _apart(value: Covariance, ntk: bool, shape: tuple[int, ...]) -> Tensor | None:
    """Move the positions of x before those of x'; None if nothing is trained and there is no tangent kernel."""
    k = value.ntk if ntk else value.nngp
    if k is None:
        return None
    axes = range(2, k.ndim)
    return k.permute(0, 1, *axes[::2], *axes[1::2]).expand(shape)
