"""Synthetic tasks of the papers: what labels depend on is known exactly."""

from __future__ import annotations

from ._alignment_reversing import AlignmentReversing, alignment_reversing
from ._chain_monomial import QuadraticTask, chain_monomial
from ._high_rank_quadratic import high_rank_quadratic
from ._spectral_gaussian import SpectralGaussian, spectral_gaussian
from ._star_images import star_images

__all__ = [
    "AlignmentReversing",
    "QuadraticTask",
    "SpectralGaussian",
    "alignment_reversing",
    "chain_monomial",
    "high_rank_quadratic",
    "spectral_gaussian",
    "star_images",
]
