"""Kernels: the protocol, and the exact kernels of infinitely wide networks."""

from ._explain import Explanation
from ._infinite_width import InfiniteWidth, InfiniteWidthKernel, NtkAndNngp, infinite_width
from ._kernel import Kernel

__all__ = ["Explanation", "InfiniteWidth", "InfiniteWidthKernel", "Kernel", "NtkAndNngp", "infinite_width"]
