"""How much arithmetic a kernel needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ntkit._src.kernels import InfiniteWidthKernel
from ntkit._src.native import rectified_operations, single_precision, tape_of


def pair_operations(kernel: InfiniteWidthKernel, input_shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
    """Return the arithmetic operations of the native engine per pair of inputs, to estimate the time of a large Gram matrix.

    Counts those of ReLU-like activations and of the sums over windows before them, nearly all of a convolutional network. An
    addition, a product, a division and a root count as one each.

    Parameters
    ----------
    kernel : InfiniteWidthKernel
        ``limit.ntk`` or ``limit.nngp``.
    input_shape : sequence of int
        The shape of one input, without the batch.
    dtype : torch.dtype
        The dtype of the inputs. Default float32.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)))
    >>> pair_operations(limit.ntk, (3,)), pair_operations(limit.nngp, (3,))
    (39, 25)
    """
    program = kernel.limit.program(input_shape)
    single = dtype == torch.float32 and single_precision(program)
    return rectified_operations(tape_of(program, ntk=kernel.which == "ntk"), single)
