"""How many arithmetic operations a computation takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

__all__ = ["Operations"]

_aten = torch.ops.aten


class Operations(TorchDispatchMode):
    """Counts the operations of matrix products and convolutions inside its block.

    torch's ``FlopCounterMode`` counts module by module, with hooks that fail if a program asks ``torch.autograd.grad`` for
    derivatives in parameters. Its formulas are used, except for convolutions: that of their derivatives ignores groups, and
    ``torch.vmap`` turns a batch of convolutions into groups of one.

    Attributes
    ----------
    total
        Operations so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and count it, or those it consists of."""
        kwargs = kwargs or {}
        packet = func._overloadpacket
        count = _CONVOLUTIONS.get(packet) or flop_registry.get(packet)
        if count is None:
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        found = func(*args, **kwargs)
        if count is not None:
            self.total += count(*args, **kwargs, out_val=found)
        return found


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    *rest: object,
    out_val: Tensor,
) -> int:
    """Count two for each weight that a number meets: a row of the weight, shape (channels of one group, *kernel)."""
    return 2 * (x if transposed else out_val).numel() * weight[0].numel()


def _convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    *,
    out_val: object,
) -> int:
    """Count as many for the derivative in the input, and in the weight, as for the convolution itself."""
    return sum(output_mask[:2]) * 2 * (x if transposed else gradient).numel() * weight[0].numel()


_CONVOLUTIONS: dict[Any, Callable[..., int]] = {
    _aten.convolution: _convolution,
    _aten._convolution: _convolution,
    _aten.convolution_backward: _convolution_backward,
}
