"""Learned vectors: tables that all inputs share, and tables looked up by integers."""

from __future__ import annotations

import torch

from ntkit.program import Keep, Keeps, Lookup, Node, Table

from ._covariance import Covariance, Ends
from ._token_axes import unmerged

__all__ = ["lookup", "table"]


def table(op: Table, node: Node, keeps: Keeps, ends: Ends) -> Covariance:
    """K[p, p'] of a table is the same for every pair of inputs."""
    like = next(iter(ends.first.data.values()))
    pairs = (len(like), len(next(iter(ends.second.data.values()))))[: ends.pair_dims]
    parts = [
        None if k is None else unmerged(k.to(like), node.positions, same=False).expand(*pairs, *(-1,) * 2 * len(keeps))
        for k in (op.covariance, op.tangent)
    ]
    assert parts[0] is not None
    return Covariance(parts[0], parts[1], (Keep.ALL,) * len(keeps)).restrict(keeps)


def lookup(op: Lookup, keeps: Keeps, ends: Ends) -> Covariance:
    """K[p, p'] = 1 where both positions hold the same integer; Theta is the same where the table is trained."""
    x1, x2 = (side.data[op.prefix, 0] for side in (ends.first, ends.second))
    first, second = ends.spread(x1, x2, keeps)
    equal = first == second
    if op.padding is not None:
        equal = equal & (first != op.padding)
    k = equal.to(torch.float64 if x1.dtype == torch.float64 else x1.dtype)
    return Covariance(k, k if op.trained else None, keeps)
