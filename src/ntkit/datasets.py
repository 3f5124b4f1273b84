"""Loaders of public data sets, and balanced splits."""

from ntkit._src.datasets import (
    Digits,
    ImageSet,
    SplitTable,
    balanced_split,
    load_celeba,
    load_cifar10,
    load_digits,
    load_fashion_mnist,
    load_mnist,
    load_stl10,
    load_svhn,
    load_uci,
)

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
