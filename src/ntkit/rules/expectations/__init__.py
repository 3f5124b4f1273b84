"""Gaussian expectations E[phi(u) phi(v)] of an activation: closed forms, tables, panels and quadrature."""

from ._closed_forms import odd_factorial
from ._dual import dual, dual_difference, mean
from ._quadrature import evaluate

__all__ = ["dual", "dual_difference", "evaluate", "mean", "odd_factorial"]
