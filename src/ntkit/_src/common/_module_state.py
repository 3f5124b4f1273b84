"""Running a user's module and leaving it, and every source of random numbers, as it was found; copies of modules."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ntkit.errors import InputError

from ._generator import restored_random_state

__all__ = [
    "OwnParameters",
    "call_with",
    "copy_module",
    "evaluation_mode",
    "measuring",
    "plain_attention",
    "unchanged",
]


_BASE = frozenset(vars(nn.Module()))  # what torch keeps in every module


@contextmanager
def measuring(module: nn.Module) -> Iterator[None]:
    """Run a module for a measurement: afterwards, also after an error, everything is as it was.

    That is all that :func:`unchanged` restores, and the states of torch's, numpy's and Python's global generators. The mode
    is the module's own: callers refuse one in which outputs are random or depend on the batch.
    """
    with unchanged(module), restored_random_state():
        yield


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Run a module for a measurement in evaluation mode; see :func:`measuring`."""
    with measuring(module):
        module.eval()
        yield


@contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Restore modes, buffers and all other attributes of a module and its parts, but not its parameters."""
    # Inside, the layers compute as they are written: without autocast, which would round to half precision, and without the
    # fast path of attention, which reads weights and calls no layer. Tables of embeddings with a ``max_norm``, which a call
    # overwrites, are restored too.
    tensors = {
        id(tensor): tensor
        for layer in module.modules()
        for tensor in (*layer._buffers.values(), *_own_values(layer))
        # What is computed in every call need not be kept, and outside of inference mode nothing changes its tensors.
        if isinstance(tensor, Tensor)
        and tensor.is_leaf
        and (torch.is_inference_mode_enabled() or not tensor.is_inference())
    }
    before = [(tensor, _version(tensor), tensor.detach().clone()) for tensor in tensors.values()]
    with restored_attributes(module), _without_autocast(module), _no_fast_path():
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, version, values in before:
                    if _changed(tensor, version, values):
                        tensor.copy_(values)


@contextmanager
def restored_attributes(module: nn.Module) -> Iterator[None]:
    """Restore what a module and its parts refer to: modes, buffers, plain tensors, numbers; not the entries of tensors."""
    # Pruning and old-style norms write the weight that they compute to the layer in every call: after a call with other
    # parameters, or under a torch.func transform, the layer would keep that call's weight.
    # TorchScript holds its mode and its buffers elsewhere.
    before = [(layer, layer.training, dict(vars(layer)), dict(layer._buffers.items())) for layer in module.modules()]
    containers = [(held, copy.copy(held)) for layer in module.modules() for held in _containers(layer)]
    try:
        yield
    finally:
        for layer, mode, attributes, buffers in before:
            layer.training = mode
            _restore(vars(layer), attributes)
            _restore(layer._buffers, buffers)
        for held, contents in containers:
            if isinstance(held, dict):
                _restore(held, contents)
            elif len(held) != len(contents) or any(a is not b for a, b in zip(held, contents, strict=True)):
                held[:] = contents


def call_with(
    module: nn.Module, parameters: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Call a module with other parameters and copies of its buffers, and restore its attributes."""
    # Under a torch.func transform a forward may not write to the buffers themselves.
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    with restored_attributes(module):
        return functional_call(module, {**buffers, **parameters}, args, dict(kwargs or {}))


@contextmanager
def plain_attention() -> Iterator[None]:
    """Make attention use operations that have all derivatives."""
    with _no_fast_path(), sdpa_kernel(SDPBackend.MATH):
        yield


@contextmanager
def _no_fast_path() -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _without_autocast(module: nn.Module) -> Iterator[None]:
    with ExitStack() as stack:
        for kind in {"cpu", *(parameter.device.type for parameter in module.parameters())}:
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _containers(layer: nn.Module) -> list[Any]:
    """Return the lists and dicts of a layer's own, which its forward may write to."""
    return [value for name, value in vars(layer).items() if name not in _BASE and type(value) in (list, dict)]


def _own_values(layer: nn.Module) -> list[Any]:
    """Return the values of a layer's attributes and of what its lists and dicts hold, and the tables that a call overwrites."""
    values = list(vars(layer).values())
    for held in _containers(layer):
        values += held.values() if isinstance(held, dict) else held
    if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.max_norm is not None:
        values.append(layer.weight)
    return values


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _changed(tensor: Tensor, version: int | None, values: Tensor) -> bool:
    # By its values: batch norm writes statistics and counts no new version. Untouched tensors keep theirs, so that a graph
    # which the user holds can still be differentiated.
    if tensor.layout == torch.strided and not tensor.is_meta:
        return not torch.equal(tensor, values)
    return _version(tensor) != version


def _restore(now: dict[str, Any], before: dict[str, Any]) -> None:
    # Entry by entry: another thread may be running the module.
    for name in [name for name in now.keys() if name not in before]:  # noqa: SIM118
        del now[name]
    for name, value in before.items():
        if name not in now or now[name] is not value:
            now[name] = value


def copy_module(module: nn.Module) -> nn.Module:
    """Copy a module, even one whose weights are recomputed in every call (pruning, weight norm).

    Such weights are results of operations, which torch cannot copy; the copy recomputes them, so here they are zeros.
    """
    memo: dict[int, object] = {}
    for layer in module.modules():
        for value in vars(layer).values():
            if isinstance(value, Tensor) and not value.is_leaf:
                memo[id(value)] = torch.zeros(value.shape, dtype=value.dtype, device=value.device)
    return copy.deepcopy(module, memo)


class OwnParameters(TorchFunctionMode):
    """A guard that refuses to run a copy of a module that computes with the original's parameters."""

    # Functions are not copied, so a hook or a forward that closes over a layer keeps using that layer, whatever happens to the
    # copy's parameters.

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self._names = {id(p): (name, weakref.ref(p)) for name, p in original.named_parameters()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in pytree.tree_leaves((args, kwargs)):
            name, parameter = self._names.get(id(leaf), ("", None))
            if parameter is not None and parameter() is leaf:
                raise InputError(
                    f"a function in the module (a hook, a forward or an activation) closes over a layer and uses its parameter "
                    f"{name!r}, so a copy of the module would not compute with its own. Let the function take the layer as an "
                    "argument: write it as a method of a subclass, or types.MethodType(function, layer)."
                )
        return func(*args, **(kwargs or {}))
