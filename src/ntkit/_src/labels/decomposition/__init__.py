"""Hoeffding's decomposition of a label-aware kernel in the labels."""

from ._hoeffding import Hoeffding, hoeffding

__all__ = ["Hoeffding", "hoeffding"]
