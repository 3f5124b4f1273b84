"""Maps of positions that differ between inputs, applied at both ends of a covariance."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["both_sides"]


def both_sides(first: Tensor, k: Tensor, second: Tensor, pair_dims: int, same: bool) -> Tensor:
    """Return A(x) K A(x')^T, or its diagonal where ``same``.

    All pairs of one input are multiplied at once, so that these are few large products.

    Parameters
    ----------
    first, second
        A(x) and A(x'), shape (n1, Q, P) and (n2, Q, P); n may be 1 for one map that all inputs share.
    k
        K, shape (n1, n2, ..., P, P'), or (n, ..., P, P') for each input with itself.
    pair_dims
        2 or 1: which of both.
    same
        Whether only Q[a, a] is asked for.

    Returns
    -------
    Tensor
        Shape (n1, n2, ..., Q, Q'), or without the last axis.
    """
    pairs = "ac" if pair_dims == 2 else "aa"
    after = "q" if same else "r"
    given, output = pairs[:pair_dims], "q" if same else "qr"
    return torch.einsum(f"{given}...ij,{pairs[0]}qi,{pairs[1]}{after}j->{given}...{output}", k, first, second)
