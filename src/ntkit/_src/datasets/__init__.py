"""Data sets as tensors, arrays and tables, and splits determined by an explicit seed."""

from __future__ import annotations

from ._alignment_reversing import AlignmentReversing, alignment_reversing
from ._chain_monomial import QuadraticTask, chain_monomial
from ._digits import Digits, balanced_split, load_digits
from ._high_rank_quadratic import high_rank_quadratic
from ._image_sets import (
    ImageSet,
    load_celeba,
    load_cifar10,
    load_fashion_mnist,
    load_mnist,
    load_stl10,
    load_svhn,
)
from ._spectral_gaussian import SpectralGaussian, spectral_gaussian
from ._uci import SplitTable, load_uci

__all__ = [
    "AlignmentReversing",
    "Digits",
    "ImageSet",
    "QuadraticTask",
    "SpectralGaussian",
    "SplitTable",
    "alignment_reversing",
    "balanced_split",
    "chain_monomial",
    "high_rank_quadratic",
    "load_celeba",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_stl10",
    "load_svhn",
    "load_uci",
    "spectral_gaussian",
]
