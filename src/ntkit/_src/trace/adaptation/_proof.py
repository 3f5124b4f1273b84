"""The proof that an adapted module is the original with the listed changes, and nothing else.

The original's own code runs with each listed change in place: inside a replaced layer, calls of its function of torch go to
the replacement (``batch_norm`` to the other norm, ``max_pool2d`` to the average); in the graph of the forward pass, each
changed node has its listed value. What the adapted module computes must equal that, and so must its derivatives in every
trained parameter, with the module's own parameters and with fresh ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ntkit._src.common import OwnParameters, copy_module
from ntkit.errors import InputError

from .._example import examples, failing_operation, guesses, shown_shape, takes
from .._nodes import ROOT
from .._replay import SCALES, Difference, check_close, compare_derivatives, probe, redraw
from ..matchers._registry import find_module
from ._layers import Swap

# A batch that the module takes, and the dtype of the parameters that go with it.
Example = tuple[Tensor, torch.dtype]
# The value that a changed node must have, by its name: a function of the run of the graph before the change.
Swaps = dict[str, Callable[["WithChanges"], Any]]


def example_of(module: nn.Module, input_shape: Sequence[int] | None) -> Example:
    """Return a batch that the module takes, in float64 if its code allows that; of a guessed shape if none is given."""
    shapes = guesses(module) if input_shape is None else [tuple(int(size) for size in input_shape)]
    for shape in shapes:
        for x, dtype in examples(module, shape):
            if takes(copy_module(module).to(dtype), x):
                return x, dtype
    if input_shape is None:
        raise InputError(
            "input_shape must be the shape of one input, such as (3, 32, 32): it cannot be guessed from the module's layers, "
            "and without inputs nothing shows that the changed module is the module with the listed changes. Got None."
        )
    x, dtype = next(examples(module, shapes[0]))
    raise InputError(
        f"the module cannot take inputs of shape {shown_shape(shapes[0])}: "
        f"{failing_operation(module, x, ROOT)} expected input_shape to be the shape of one input."
    )


def prove_layers(original: nn.Module, replaced: nn.Module, swaps: Mapping[str, Swap], example: Example) -> None:
    """Compare a module with replaced layers with the original, whose layers call other functions (``swaps``, by path)."""
    reference = copy_module(original).to(example[1])
    for path, swap in swaps.items():
        layer = reference.get_submodule(path)
        layer.forward = partial(_swapped, layer.forward, swap)
    with OwnParameters(original):
        _compare(reference, reference, copy_module(replaced), example)


def prove_graph(replaced: nn.Module, rewritten: nn.Module, swaps: Swaps, example: Example) -> None:
    """Compare a changed graph with that before, whose changed nodes have other values, and that with the module."""
    reference = copy_module(replaced).to(example[1])
    _compare(reference, WithChanges(reference, {}).run, reference, example)
    _compare(reference, WithChanges(reference, swaps).run, copy_module(rewritten), example)


class AdaptTracer(fx.Tracer):
    """Stops at modules that the registry knows, as well as at PyTorch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return find_module(m) is not None or super().is_leaf_module(m, module_qualified_name)


class WithChanges(fx.Interpreter):
    """Runs the graph of a module as it was, with other values for the changed nodes and no operation in place."""

    def __init__(self, module: nn.Module, swaps: Mapping[str, Callable[[WithChanges], Any]]) -> None:
        graph = AdaptTracer().trace(module)
        super().__init__(fx.GraphModule(module, graph), garbage_collect_values=False)
        self.swaps = swaps
        self.nodes = {node.name: node for node in graph.nodes}

    def run_node(self, n: fx.Node) -> Any:
        """Return the value of a node."""
        swap = self.swaps.get(n.name)
        return super().run_node(n) if swap is None else swap(self)

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a node's arguments; copies, so that none is overwritten."""
        copied = fx.node.map_aggregate(
            super().fetch_args_kwargs_from_env(n), lambda a: a.clone() if isinstance(a, Tensor) else a
        )
        return copied

    def values(self, arguments: Any) -> Any:
        """Return arguments of a node of the changed graph with the values that they have here."""
        return fx.node.map_arg(arguments, lambda n: self.env[self.nodes[n.name]])

    def again(self, name: str, value: Tensor) -> Any:
        """Return what a node with one input gives for another value of it."""
        node = self.nodes[name]
        source = node.all_input_nodes[0]
        kept, self.env[source] = self.env[source], value
        result = super().run_node(node)
        self.env[source] = kept
        return result


class _Instead(TorchFunctionMode):
    """Sends the calls of a swap's function to the replacement."""

    def __init__(self, swap: Swap) -> None:
        super().__init__()
        self.swap = swap

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__name__", "") == self.swap.function:
            return self.swap.instead(args[0] if args else (kwargs or {})["input"])
        return func(*args, **(kwargs or {}))


def _swapped(forward: Callable[..., Any], swap: Swap, *args: Any, **kwargs: Any) -> Any:
    with _Instead(swap):
        return forward(*args, **kwargs)


def _compare(owner: nn.Module, reference: Callable[[Tensor], Any], changed: nn.Module, example: Example) -> None:
    """Compare a run with the parameters of ``owner`` with a module that gets the same parameters, by their names."""
    parameters = dict(owner.named_parameters(remove_duplicate=False))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        try:
            for name, _ in list(changed.named_parameters(remove_duplicate=False)):
                path, _, last = name.rpartition(".")
                changed.get_submodule(path)._parameters[last] = parameters[name]
            changed.to(example[1])  # its buffers: the parameters are already
            for run, scales in enumerate(SCALES):
                if run == 1:
                    redraw(owner.parameters(), 3)
                x = probe(lambda x: next(iter(_tensors(reference(x))), None), example[0], scales)
                if x is None and run == 0:
                    continue  # the module's own parameters may be anything
                if x is None:
                    raise InputError(
                        "the module's output is NaN or infinite for inputs of usual size, so nothing shows that the changed "
                        "module is the module with the listed changes. Check its buffers and operations."
                    )
                expected, given = _tensors(reference(x.clone())), _tensors(changed(x.clone()))
                if len(expected) != len(given):
                    raise Difference(f"they return {len(expected)} tensors, not {len(given)}")
                for one, other in zip(expected, given, strict=True):
                    check_close(other, one, "its output", None)
                    if run == 1:
                        compare_derivatives(owner, other, one)
        except InputError:
            raise
        except Difference as difference:
            raise _refusal(f"with the listed changes alone, {difference.what}") from difference
        except Exception as error:  # the module's own code may raise anything
            raise _refusal(f"it raises {type(error).__name__}: {error}") from error


def _refusal(what: str) -> InputError:
    return InputError(
        "the adapted module would differ from the module in more than the listed changes, so there is none: "
        f"{what}. The module's code depends on a layer's type or attributes, on hooks, on in-place changes or on random "
        "numbers. Write the forward as a function of its input that calls its layers, or change the module by hand."
    )


def _tensors(output: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
