"""Linear systems with a Gram matrix; every solver returns a value, a status sentence and numbers about the run."""

from __future__ import annotations

from ._checks import check_ridge
from ._cholesky import CholeskyFactor, factorize
from ._solution import Solution
from ._solve import solve

__all__ = ["CholeskyFactor", "Solution", "check_ridge", "factorize", "solve"]
