"""Whether torch may differentiate through a tensor, and how to compute constants while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad

__all__ = ["as_constant", "constant", "differentiated", "transformed", "without_derivatives"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def differentiated(*tensors: Tensor) -> bool:
    """Return whether torch may differentiate any of the tensors: in reverse mode, in forward mode, or by torch.func."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return True
    return any(transformed(tensor) or forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def transformed(tensor: Tensor) -> bool:
    """Return whether a tensor belongs to a transform of torch.func."""
    return bool(_functorch.is_functorch_wrapped_tensor(tensor))


def as_constant(tensor: Tensor) -> Tensor:
    """Return the values of a tensor without derivatives, as an ordinary tensor even inside torch.func's transforms."""
    tensor = tensor.detach()
    while transformed(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


@contextmanager
def without_derivatives() -> Iterator[None]:
    """Compute constants outside inference mode, autograd and torch.func's transforms, whichever is active.

    Inside a transform every new tensor belongs to that transform, so a cached one would be useless later, and modules
    cannot be copied.
    """
    with torch.inference_mode(False), torch.no_grad(), temporarily_clear_interpreter_stack():
        yield


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of constants whose result is cached: it runs under :func:`without_derivatives`."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with without_derivatives():
            return function(*args, **kwargs)

    return run
