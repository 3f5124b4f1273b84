"""The gains of a kernel as numbers that an adapter can read and replace."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.trace import B_STD, W_STD

from ._infinite_width_kernel import InfiniteWidthKernel
from ._kernel import Kernel

__all__ = ["GAINS", "gain", "with_gains"]

GAINS = ("w_std", "b_std")


def gain(kernel: Kernel, name: str) -> float:
    """Return a gain of an infinite-width kernel that all layers share, and that may be changed; zero if there is none.

    That is so for other kernels, with PyTorch's initialisation, and for modules whose layers have gains of their own.
    """
    if not isinstance(kernel, InfiniteWidthKernel) or kernel.limit.gains.init == "torch":
        return 0.0
    if kernel.limit.gains.parametrized:
        return 0.0
    value = getattr(kernel.limit.gains, name)
    if value is None:
        value = W_STD if name == "w_std" else B_STD
    return value.item() if isinstance(value, Tensor) else float(value)


def with_gains(kernel: Kernel, w_std: float | Tensor, b_std: float | Tensor) -> Kernel:
    """Return the same kernel of the same module with other gains."""
    assert isinstance(kernel, InfiniteWidthKernel)
    return InfiniteWidthKernel(kernel.limit.with_gains(w_std, b_std), kernel.which)
