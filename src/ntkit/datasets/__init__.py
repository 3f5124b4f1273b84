"""Data sets as tensors and tables, and splits that follow from an explicit seed."""

from __future__ import annotations

from ._digits import Digits, balanced_split, load_digits
from ._uci import SplitTable, load_uci

__all__ = ["Digits", "SplitTable", "balanced_split", "load_digits", "load_uci"]
