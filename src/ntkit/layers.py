"""Modules of this library that users put into their networks."""

from ntkit._src.layers import Elementwise, FourierFeatures, SelfAttention

__all__ = [
    "Elementwise",
    "FourierFeatures",
    "SelfAttention",
]
