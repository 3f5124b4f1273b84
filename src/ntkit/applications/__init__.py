"""What tangent kernels are used for: matrix completion."""

from .completion import NTKImputer

__all__ = ["NTKImputer"]
