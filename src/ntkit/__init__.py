"""Neural tangent kernels of ordinary PyTorch modules."""

from . import errors, testing
from .estimators import NTKClassifier, NTKRegressor
from .kernels import InfiniteWidth, Kernel, as_gpytorch_kernel, as_sklearn_kernel, infinite_width
from .native import build_info
from .solvers import Solution, solve
from .trace import Elementwise, supported_layers

__version__ = build_info().version

__all__ = [
    "Elementwise",
    "InfiniteWidth",
    "Kernel",
    "NTKClassifier",
    "NTKRegressor",
    "Solution",
    "as_gpytorch_kernel",
    "as_sklearn_kernel",
    "errors",
    "infinite_width",
    "solve",
    "supported_layers",
    "testing",
]
