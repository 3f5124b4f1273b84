"""Proxies that know their shapes, so that code that computes with sizes can be traced.

Every operation also runs on two examples with different numbers of inputs. A size that is the same in both is a plain
number; one that differs depends on the batch and stays symbolic, so that the graph works for batches of any size. Numbers
and sizes that depend on the values of the data cannot be traced: those of an example are not those of other inputs.
"""

from __future__ import annotations

import builtins
import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ._nodes import NUMBERS_OF_DATA, call_node, reads_shape, shape_from_values, without_tensors
from .matchers._registry import find_module

_BATCHES = (2, 3)


class Sizes(tuple[Any, ...]):
    """A shape: numbers, and a proxy for each size that depends on the batch."""

    def numel(self) -> Any:
        """Return the number of entries."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return Sizes(found) if isinstance(index, slice) else found


class ShapeProxy(fx.Proxy):
    """A recorded value, with its values on the two examples."""

    tracer: ShapeTracer

    @property
    def examples(self) -> tuple[Any, Any]:
        """Its values on the examples."""
        return self.tracer.values[self.node]

    def __getattr__(self, k: str) -> Any:
        value = self.examples[0]
        if isinstance(value, Tensor):
            if k == "shape":
                return self._sizes()
            if k in ("ndim", "dtype", "device", "is_cuda", "layout"):
                return getattr(value, k)
            if k in ("dim", "ndimension"):
                return lambda: value.ndim
            if k == "size":
                return lambda dim=None: self._sizes() if dim is None else self._sizes()[dim]
            if k == "numel":
                return lambda: self._sizes().numel()
            if k in ("is_floating_point", "is_complex"):
                return getattr(value, k)
        return super().__getattr__(k)

    def _sizes(self) -> Sizes:
        if self.node in self.tracer.ragged:
            raise self.tracer.failed("a size depends on the values of a tensor")
        first, second = self.examples
        if first.ndim != second.ndim:
            raise self.tracer.failed("the number of dimensions depends on the size of the batch")
        return Sizes(
            a if a == b else self.tracer.create_proxy("call_method", "size", (self, dim), {})
            for dim, (a, b) in enumerate(zip(first.shape, second.shape, strict=True))
        )

    def __len__(self) -> int:
        return self.__index__() if not isinstance(length := _length(self), int) else length

    def __index__(self) -> int:
        first, second = self.examples
        if isinstance(first, int) and first == second:
            return first
        raise self.tracer.failed("a number that depends on the size of the batch is used as a plain integer")

    __int__ = __index__


def _length(value: Any) -> Any:
    """Do what ``len`` does, for proxies too."""
    if not isinstance(value, ShapeProxy):
        return builtins.len(value)
    example = value.examples[0]
    return value._sizes()[0] if isinstance(example, Tensor) else builtins.len(example)


def _recorded(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of sizes, or record it if a size is a proxy."""
    sizes = pytree.tree_leaves(args)
    tracer = next((size.tracer for size in sizes if isinstance(size, ShapeProxy)), None)
    return function(*args, **kwargs) if tracer is None else tracer.create_proxy("call_function", function, args, kwargs)


@contextmanager
def lengths_of_proxies(module: nn.Module) -> Iterator[None]:
    """Let ``len`` in the forwards of a module, and ``torch.zeros``, accept proxies: Python's own take only integers."""
    forwards = [inspect.unwrap(getattr(layer.forward, "__func__", layer.forward)) for layer in module.modules()]
    spaces = {id(space): space for f in forwards if (space := getattr(f, "__globals__", None)) is not None}
    changed = [space for space in spaces.values() if "len" not in space]
    for space in changed:
        space["len"] = _length
    zeros = torch.zeros
    torch.zeros = partial(_recorded, zeros)
    try:
        yield
    finally:
        torch.zeros = zeros
        for space in changed:
            del space["len"]


class ShapeTracer(fx.Tracer):
    """Records a module's operations, and stops at layers that the registry knows."""

    def __init__(self, example: Tensor) -> None:
        super().__init__()
        rows = example[:1]
        self.values: dict[fx.Node, tuple[Any, Any]] = {}  # of each node on the two examples
        self.ragged: set[fx.Node] = set()  # nodes whose shapes depend on the values of tensors
        self._of_data: set[fx.Node] = set()
        self.branches_on_batch = False
        self.failure = ""  # why it cannot be traced: the module's own code may catch the exception that says so
        first, second = (rows.expand(n, *rows.shape[1:]).clone() for n in _BATCHES)
        self._examples = (first, second)
        self._running = False

    def failed(self, reason: str) -> fx.proxy.TraceError:
        """Return the exception to raise, and remember its reason."""
        self.failure = self.failure or reason
        return fx.proxy.TraceError(reason)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """Return the forward as a function of one input; its further arguments keep their defaults."""
        return (lambda root, x: root_fn(root, x)), [self.root, self.create_proxy("placeholder", "x", (), {})]

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if "forward" in vars(m):
            return False  # an instance with its own forward
        known = find_module(m)
        if known is not None and type(m).forward is known.kind.forward:
            return True  # a known layer, or a subclass with the same forward
        return super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> ShapeProxy:
        return ShapeProxy(node, self)

    def create_node(
        self, kind: str, target: Any, args: Any, kwargs: Any, name: Any = None, type_expr: Any = None
    ) -> Any:
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        if kind == "placeholder":
            self.values[node] = self._examples
            self._of_data.add(node)
        elif kind != "output":
            self.values[node] = (self._run(node, 0), self._run(node, 1))
            self._check_values(node)
        return node

    def _check_values(self, node: fx.Node) -> None:
        """Notice what depends on the values of the data: numbers, which cannot be traced, and shapes."""
        result, read = self.values[node][0], node.all_input_nodes
        if isinstance(result, Tensor):
            node.meta["ntkit_shape"] = tuple(result.shape)
        if not any(n in self._of_data for n in read):
            return
        self._of_data.add(node)
        tensors = any(isinstance(self.values[n][0], Tensor) for n in read)
        if tensors and without_tensors(result) and not reads_shape(node):
            raise self.failed(NUMBERS_OF_DATA)
        args = fx.node.map_arg(node.args, lambda n: self.values[n][0])
        if shape_from_values(node, args) or any(n in self.ragged for n in read):
            self.ragged.add(node)

    def _run(self, node: fx.Node, side: int) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.values[n][side])
        before, self._running = self._running, True
        try:
            with torch.no_grad():
                return call_node(self.root, node, args, kwargs)
        finally:
            self._running = before

    # While an example runs, modules are called and attributes read as usual.
    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        return forward(*args, **kwargs) if self._running else super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self._running else super().getattr(attr, attr_val, parameter_proxy_cache)

    def to_bool(self, obj: fx.Proxy) -> bool:
        first, second = self.values[obj.node]
        if isinstance(first, Tensor):
            raise self.failed("a branch depends on the values of a tensor")
        if bool(first) != bool(second):
            raise self.failed("a branch depends on the size of the batch")
        self.branches_on_batch = True  # sizes that do not depend on the batch are no proxies
        return bool(first)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        count = _length(obj)
        if not isinstance(count, int):
            raise self.failed("a loop runs over the batch")
        return (obj[index] for index in range(count))  # type: ignore[index]
