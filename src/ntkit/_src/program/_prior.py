"""Covariances of the input that replace data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._op import Keeps, Op

__all__ = ["GivenPrior", "Prior", "StationaryPrior"]


@dataclass(frozen=True, eq=False)
class Prior(Op):
    """A random input whose channels are independent Gaussians with a known covariance over positions."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ()

    def label(self) -> str:
        return "prior"


@dataclass(frozen=True, eq=False)
class StationaryPrior(Prior):
    """K[p, p'] = ``same`` where p = p' and ``other`` elsewhere, over axes of lengths ``positions``."""

    positions: tuple[int, ...]
    same: float | Tensor
    other: float | Tensor


@dataclass(frozen=True, eq=False)
class GivenPrior(Prior):
    """K[p, p'] as given: ``covariance`` of shape (P1, P2, ..., P1, P2, ...), the positions of x first."""

    covariance: Tensor
