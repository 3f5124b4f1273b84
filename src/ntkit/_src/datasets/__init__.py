"""Data sets as tensors, arrays and tables, and splits determined by an explicit seed."""

from __future__ import annotations

from ._digits import Digits, balanced_split, load_digits
from ._image_sets import (
    ImageSet,
    load_celeba,
    load_cifar10,
    load_fashion_mnist,
    load_mnist,
    load_stl10,
    load_svhn,
)
from ._uci import SplitTable, load_uci

__all__ = [
    "Digits",
    "ImageSet",
    "SplitTable",
    "balanced_split",
    "load_celeba",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_stl10",
    "load_svhn",
    "load_uci",
]
