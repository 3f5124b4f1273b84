"""Whether torch may differentiate through a tensor, constants computed while it does, and derivatives of higher order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

__all__ = ["Elementary", "as_constant", "constant", "differentiated", "transformed", "without_derivatives"]

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
    """Compute constants outside inference mode, autograd and torch.func's transforms, whichever is active."""
    # Inside a transform every new tensor belongs to that transform, so a cached one would be useless later, and modules
    # cannot be copied.
    with torch.inference_mode(False), torch.no_grad(), temporarily_clear_interpreter_stack():
        yield


def constant(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function of constants whose result is cached: it runs under :func:`without_derivatives`."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with without_derivatives():
            return function(*args, **kwargs)

    return run


class Elementary(TorchFunctionMode):
    """A context in which the normalisations below are computed from means, products and roots, in nested forward mode.

    torch's own forward-mode derivative of ``layer_norm`` and ``instance_norm`` is right to first order, but its derivatives are
    silently wrong (torch 2.13: from the second derivative along a line; in reverse mode, from the third); those of ``glu``
    (beyond the first) and of weight norms do not exist. A test compares these, and many left unchanged, with reverse mode.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _WRITTEN_OUT.get(func, func)(*args, **(kwargs or {}))


def _standardized(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    centred = x - x.mean(list(dims), keepdim=True)
    return centred * (centred.square().mean(list(dims), keepdim=True) + eps).rsqrt()


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    y = _standardized(input, range(-len(normalized_shape), 0), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    grouped = input.reshape(len(input), num_groups, -1)
    return _affine(_standardized(grouped, (-1,), eps).reshape(input.shape), weight, bias)


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return F.batch_norm(input, running_mean, running_var, weight, bias, eps=eps)
    return _affine(_standardized(input, range(2, input.ndim), eps), weight, bias)


def _affine(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    shape = (1, -1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _glu(input: Tensor, dim: int = -1) -> Tensor:
    a, b = input.chunk(2, dim)
    return a * torch.sigmoid(b)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    others = [d for d in range(v.ndim) if d != dim]  # dim=-1: the norm of the whole tensor
    return g * v / v.square().sum(others, keepdim=True).sqrt()


_WRITTEN_OUT: dict[Any, Callable[..., Tensor]] = {
    F.layer_norm: _layer_norm,
    torch.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    torch.group_norm: _group_norm,
    F.instance_norm: _instance_norm,
    F.glu: _glu,
    torch._weight_norm: _weight_norm,
}
