"""Data sets as tensors, and splits that follow from an explicit seed."""

from __future__ import annotations

from ._digits import Digits, balanced_split, load_digits

__all__ = ["Digits", "balanced_split", "load_digits"]
