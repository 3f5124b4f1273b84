"""Covariances of the input that replace data."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import GivenPrior, Keep, Keeps, Prior, StationaryPrior

from ._covariance import Covariance, Ends

__all__ = ["prior_covariance"]


def prior_covariance(op: Prior, keeps: Keeps, ends: Ends) -> Covariance:
    """Return the covariance K[p, p'] of the single random input that all networks share."""
    like = next(iter(ends.first.data.values()))
    if isinstance(op, StationaryPrior):
        k = op.other + (op.same - op.other) * _diagonal(op.positions, keeps, like)
    else:
        assert isinstance(op, GivenPrior)
        rank = len(keeps)
        k = op.covariance.to(like).permute([dim for axis in range(rank) for dim in (axis, rank + axis)])
        k = Covariance(k[None], None, (Keep.ALL,) * rank).restrict(keeps).nngp[0]
    return Covariance(k[(None,) * ends.pair_dims], None, keeps)


def _diagonal(positions: tuple[int, ...], keeps: Keeps, like: Tensor) -> Tensor:
    """Return ones where p = p' and zeros elsewhere."""
    mask = like.new_ones(())
    for size, keep in zip(positions, keeps, strict=True):
        same = torch.eye(size, dtype=like.dtype, device=like.device) if keep is Keep.ALL else like.new_ones(size)
        mask = mask[(...,) + (None,) * same.ndim] * same
    return mask
