"""Gaussian expectations E[phi(u) phi(v)] of an activation: closed forms, tables, panels and quadrature."""

from ._closed_forms import odd_factorial
from ._dual import dual, dual_difference, dual_with_difference, mean
from ._pair import half_apart, safe_sqrt
from ._quadrature import evaluate

__all__ = [
    "dual",
    "dual_difference",
    "dual_with_difference",
    "evaluate",
    "half_apart",
    "mean",
    "odd_factorial",
    "safe_sqrt",
]
