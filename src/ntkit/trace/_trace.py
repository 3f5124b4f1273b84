"""From a module to a program: the traced graph is read once with an example, operation by operation."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from ntkit.errors import InputError, InputTypeError, Problem, UnsupportedLayerError
from ntkit.program import Program

from ._builder import EMPIRICAL, Builder, Refused
from ._gains import GainRule
from ._graph import Untraceable, export_graph, prefix_module, symbolic_graph
from ._inplace import overwritten
from ._registry import Matcher, find, find_module
from ._values import Computed, Data, Field, Unknown, Weight

__all__ = ["Tracer"]

_BATCH = 2
_ROOT = "forward"
# torch.fx replaces methods of nn.Module while it traces, for every thread, so only one may trace or run a traced module.
_TRACING = threading.RLock()


class Tracer:
    """A module as it was when the tracer was made, ready to be read for any input shape.

    Parameters
    ----------
    module
        Copied, in evaluation mode; later changes to it have no effect.
    gains
        The variances of its layers.
    """

    def __init__(self, module: nn.Module, gains: GainRule) -> None:
        if not isinstance(module, nn.Module):
            raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")
        lazy = [name for name, p in module.named_parameters() if isinstance(p, nn.parameter.UninitializedParameter)]
        if lazy:
            raise InputError(f"the parameters {lazy} have no shape yet. Call the module once on an example before.")
        self.module = copy.deepcopy(module).eval()
        self.gains = gains
        self._programs: dict[tuple[int, ...], Program] = {}
        self._symbolic: fx.GraphModule | None = None
        self._failure = ""
        with _TRACING:
            try:
                self._symbolic = symbolic_graph(self.module)
            except Untraceable as error:
                self._failure = str(error)
            self._probe()

    def program(self, input_shape: Sequence[int]) -> Program:
        """Give the program for inputs of one shape, without the batch dimension.

        Raises
        ------
        UnsupportedLayerError
            With every place that has no closed-form limit.
        """
        shape = tuple(int(size) for size in input_shape)
        with _TRACING:
            if shape not in self._programs:
                self._programs[shape] = self._read(self._example(shape))
        return self._programs[shape]

    def _example(self, shape: tuple[int, ...]) -> Tensor:
        parameter = next((p for p in self.module.parameters() if p.is_floating_point()), torch.empty(0))
        generator = torch.Generator().manual_seed(0)
        example = torch.randn((_BATCH, *shape), generator=generator, dtype=torch.float64)
        return example.to(parameter.dtype).to(parameter.device)

    def _forward(self, example: Tensor) -> Any:
        try:
            with torch.no_grad():
                return self.module(example.clone())
        except Exception as error:  # the module's own code may raise anything
            raise InputError(
                f"the module cannot take inputs of shape (n, {', '.join(map(str, example.shape[1:]))}): {error}"
            ) from error

    def _probe(self) -> None:
        """Look for problems right away, with the first guess of an input shape that the module takes."""
        for shape in _guesses(self.module):
            try:
                self.program(shape)
            except InputError:
                continue
            return

    def _graph(self, example: Tensor) -> fx.GraphModule:
        if self._symbolic is not None:
            return self._symbolic
        try:
            return export_graph(self.module, example)
        except Untraceable as error:
            problem = Problem(
                _ROOT,
                type(self.module).__name__,
                "its forward could not be read as a graph (control flow that depends on the data, or operations on values "
                f"outside torch); symbolic tracing said {self._failure.splitlines()[0]!r}, export said "
                f"{str(error).splitlines()[0]!r}",
                f"write the forward without such control flow; or {EMPIRICAL}",
            )
            raise UnsupportedLayerError((problem,)) from error

    def _read(self, example: Tensor) -> Program:
        output = self._forward(example)
        graph = self._graph(example)
        reader = _Reader(graph, example, self.gains)
        value = reader.read()
        if isinstance(value, tuple) and len(value) == 1 and isinstance(output, Tensor):
            value = value[0]  # an exported graph gives its outputs as a tuple
        problems = reader.problems
        if not problems and isinstance(output, Tensor) and not _same(output, graph, example):
            problems.append(
                Problem(
                    _ROOT,
                    type(self.module).__name__,
                    "its traced operations do not reproduce its output (in-place changes or side effects that tracing cannot "
                    "see, or randomness)",
                    f"write the forward as a function of its input alone; or {EMPIRICAL}",
                )
            )
        if not problems and not isinstance(value, Field):
            kind = "computed from the input alone" if isinstance(value, Data) else f"a {type(output).__name__}"
            problems.append(
                Problem(
                    _ROOT,
                    type(self.module).__name__,
                    f"its output is {kind}, not one tensor computed by layers with weights",
                    "return one tensor that an nn.Linear or nn.Conv layer has part in",
                )
            )
        if problems:
            raise UnsupportedLayerError(tuple(problems))
        unknown = sorted(set(self.gains.overrides) - set(reader.builder.layers))
        if unknown:
            raise InputError(
                f"overrides names the layers {unknown}, which the module does not use. Its layers with weights are "
                f"{sorted(reader.builder.layers)}."
            )
        return reader.builder.program(value)


class _Reader:
    """Reads one graph with one example."""

    def __init__(self, graph: fx.GraphModule, example: Tensor, gains: GainRule) -> None:
        self.graph, self.example = graph, example
        self.builder = Builder(gains, self._prefix, len(example))
        self.problems: list[Problem] = []
        self._values: dict[fx.Node, Any] = {}
        self._inputs = 0

    def read(self) -> Any:
        """Give the value of the output."""
        result: Any = Unknown()
        for node in self.graph.graph.nodes:
            self.builder.path = _path(node)
            if node.op == "output":
                result = fx.node.map_arg(node.args[0], lambda n: self._values[n])
                break
            try:
                self._values[node] = self._evaluate(node)
            except Refused as refused:
                self.problems.append(Problem(_path(node), self._what(node), refused.reason, refused.instead))
                self._values[node] = Unknown() if refused.then is None else refused.then
        return result

    def _evaluate(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            self._inputs += 1
            if self._inputs == 1:
                return Data(self.example.clone(), node)
            if node.args:
                return node.args[0]
            raise Refused("the module takes more than one input", "write a module of one tensor")
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._values[n])
        leaves = _leaves((args, kwargs))
        module = self.graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        matcher, own = self._matcher(node, module)
        if any(isinstance(leaf, Unknown) for leaf in leaves):
            if matcher is not None and matcher.refuses:
                matcher.build(self.builder, *args, **kwargs, **own)
            return Unknown()
        if any(isinstance(leaf, Field) for leaf in leaves):
            overwritten(node, module)
            return self._build(matcher, node, args, kwargs, own)
        if any(isinstance(leaf, Data) for leaf in leaves):
            if matcher is not None and matcher.fresh and isinstance(args[0], Data):
                return self._build(matcher, node, args, kwargs, own)
            return self._run_on_data(node, module, args, kwargs, leaves)
        return self._run_on_constants(node, module, args, kwargs, leaves)

    def _matcher(self, node: fx.Node, module: nn.Module | None) -> tuple[Matcher | None, dict[str, Any]]:
        if module is not None:
            found = find_module(module)
            return (None, {}) if found is None else (found.matcher, dict(found.arguments(module, str(node.target))))
        target: object = node.target
        if isinstance(target, torch._ops.OpOverload):
            target = target._schema.name.split("::")[1]
        return find(target), {}

    def _build(
        self, matcher: Matcher | None, node: fx.Node, args: Any, kwargs: dict[str, Any], own: dict[str, Any]
    ) -> Any:
        if matcher is None:
            raise Refused(
                "no rule for this operation on random values",
                "write it with supported layers, wrap an elementwise function in ntkit.Elementwise(function); or "
                + EMPIRICAL,
            )
        try:
            return matcher.build(self.builder, *args, **kwargs, **own)
        except TypeError as error:  # an argument that the matcher does not know
            raise Refused(
                f"called with arguments that have no rule ({error})", "call it with its usual arguments"
            ) from error

    def _run_on_data(self, node: fx.Node, module: nn.Module | None, args: Any, kwargs: Any, leaves: list[Any]) -> Any:
        """Run what comes before the first random layer as it is."""
        overwritten(node, module)
        trained = [leaf.path for leaf in leaves if isinstance(leaf, Weight) and leaf.trained]
        if module is not None:
            trained += [f"{node.target}.{name}" for name, p in module.named_parameters() if p.requires_grad]
        if trained or any(isinstance(leaf, Computed) for leaf in leaves):
            raise Refused(
                f"trained parameters {trained} act on raw data before the first layer with weights; there are only as many "
                "raw channels as the data has, so their gradient stays random",
                "freeze them with requires_grad_(False), or put an nn.Linear or nn.Conv layer before",
            )
        value = self._run(node, module, args, kwargs)
        if isinstance(value, (Tensor, tuple, list)) and not isinstance(value, torch.Size):
            return Data(value, node)
        return value

    def _run_on_constants(
        self, node: fx.Node, module: nn.Module | None, args: Any, kwargs: Any, leaves: list[Any]
    ) -> Any:
        value = self._run(node, module, args, kwargs)
        if any(isinstance(leaf, Computed) or (isinstance(leaf, Weight) and leaf.trained) for leaf in leaves):
            return Computed(value)
        return value

    def _run(self, node: fx.Node, module: nn.Module | None, args: Any, kwargs: Any) -> Any:
        args, kwargs = fx.node.map_aggregate((args, kwargs), _concrete)
        with torch.no_grad():
            if module is not None:
                return module(*args, **kwargs)
            if node.op == "call_method":
                return getattr(args[0], str(node.target))(*args[1:], **kwargs)
            assert callable(node.target)
            return node.target(*args, **kwargs)

    def _attribute(self, path: str) -> Any:
        owner, _, name = path.rpartition(".")
        value = getattr(self.graph.get_submodule(owner), name)
        return Weight(path, value) if isinstance(value, nn.Parameter) else value

    def _prefix(self, node: object) -> fx.GraphModule | None:
        assert isinstance(node, fx.Node)
        prefix = prefix_module(self.graph, node)
        if prefix is None:
            return None
        prefix = copy.deepcopy(prefix).eval()
        whole = prefix(self.example.clone())
        alone = torch.cat([prefix(row.clone()) for row in self.example.split(1)])
        if not torch.allclose(whole, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise UnsupportedLayerError(
                (
                    Problem(
                        _path(node),
                        self._what(node),
                        "what comes before the first layer mixes the inputs of a batch, so there is no kernel of two inputs",
                        "standardise the data beforehand, with statistics of the training set",
                    ),
                )
            )
        return prefix.double()

    def _what(self, node: fx.Node) -> str:
        if node.op == "call_module":
            return type(self.graph.get_submodule(str(node.target))).__name__
        return str(getattr(node.target, "__name__", node.target))


def _concrete(value: Any) -> Any:
    if isinstance(value, (Data, Computed)):
        return value.value
    return value.parameter if isinstance(value, Weight) else value


def _leaves(structure: Any) -> list[Any]:
    found: list[Any] = []
    fx.node.map_aggregate(structure, lambda leaf: found.append(leaf))
    return found


def _path(node: fx.Node) -> str:
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack")
    inner = [str(entry[0] if isinstance(entry, tuple) else entry) for entry in (stack or {}).values()]
    return (inner[-1] if inner else "") or _ROOT


def _same(output: Tensor, graph: fx.GraphModule, example: Tensor) -> bool:
    with torch.no_grad():
        again = graph(example.clone())
    return (
        isinstance(again, Tensor)
        and output.shape == again.shape
        and torch.allclose(output, again, rtol=1e-3, atol=1e-4, equal_nan=True)
    )


def _guesses(module: nn.Module) -> list[tuple[int, ...]]:
    """Guess input shapes from the first layer with weights."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            width = layer.in_features
            return [(width,), (4, width), (3, 8, 8), (1, 8, 8), (1,), (2,), (3,)]
        for ndim, kind in ((1, nn.Conv1d), (2, nn.Conv2d), (3, nn.Conv3d)):
            if isinstance(layer, kind):
                return [(layer.in_channels, *(side,) * ndim) for side in ((32, 28, 64, 16, 8) if ndim < 3 else (16, 8))]
    return []
