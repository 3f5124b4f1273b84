"""Modules of this library that users put into their networks."""

from ._fourier_features import FourierFeatures

__all__ = [
    "FourierFeatures",
]
