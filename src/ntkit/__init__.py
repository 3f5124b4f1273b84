"""Neural tangent kernels of ordinary PyTorch modules."""

from .kernels import InfiniteWidth, Kernel, infinite_width
from .trace import Elementwise, supported_layers

__version__ = "0.1.0"

__all__ = ["Elementwise", "InfiniteWidth", "Kernel", "infinite_width", "supported_layers"]
