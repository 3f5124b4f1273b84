"""Kernels: the protocol, the exact kernels of infinitely wide networks, and adapters to other libraries."""

from ._explain import Explanation
from ._gpytorch import as_gpytorch_kernel
from ._infinite_width import InfiniteWidth, InfiniteWidthKernel, NtkAndNngp, infinite_width
from ._kernel import Kernel
from ._sklearn import as_sklearn_kernel

__all__ = [
    "Explanation",
    "InfiniteWidth",
    "InfiniteWidthKernel",
    "Kernel",
    "NtkAndNngp",
    "as_gpytorch_kernel",
    "as_sklearn_kernel",
    "infinite_width",
]
