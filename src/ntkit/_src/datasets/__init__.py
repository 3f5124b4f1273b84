"""Data sets as tensors and arrays, and splits determined by an explicit seed."""

from ._digits import Digits, balanced_split, load_digits
from ._image_sets import ImageSet, load_celeba, load_cifar10, load_fashion_mnist, load_mnist, load_stl10, load_svhn

__all__ = [
    "Digits",
    "ImageSet",
    "balanced_split",
    "load_celeba",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_stl10",
    "load_svhn",
]
