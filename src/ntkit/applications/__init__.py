"""Applications of tangent kernels: matrix completion, and scores of untrained networks in :mod:`~ntkit.applications.search`."""

from ntkit._src.applications import NTKImputer

from . import search

__all__ = ["NTKImputer", "search"]
