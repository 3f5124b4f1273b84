"""Gaussian expectations E[phi(u) phi(v)] of an activation: closed forms, tables, panels and quadrature."""

from . import _any_function as _any_function  # registers its expectations
from ._closed_forms import odd_factorial
from ._expectations import dual, dual_with_difference, gain_dual, mean
from ._pair import half_apart, safe_sqrt
from ._quadrature import evaluate, hermite_functions
