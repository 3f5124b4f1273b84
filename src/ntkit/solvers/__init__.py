"""Linear systems with a Gram matrix; every solver returns a value, a status sentence and numbers about the run."""

from __future__ import annotations

from ntkit.common import check_gram, check_ridge, check_right_hand_side

from ._cholesky import CholeskyFactor, best_factor, factorize, factorize_exactly
from ._eigh import Spectrum, decompose
from ._in_place import InPlaceFactor, factorize_in_place
from ._solution import Solution
from ._solve import solve

__all__ = [
    "CholeskyFactor",
    "InPlaceFactor",
    "Solution",
    "Spectrum",
    "best_factor",
    "check_gram",
    "check_ridge",
    "check_right_hand_side",
    "decompose",
    "factorize",
    "factorize_exactly",
    "factorize_in_place",
    "solve",
]
