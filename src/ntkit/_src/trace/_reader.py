"""Reads a traced graph operation by operation, with an example, and builds the program; collects every refusal."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn

from ntkit._src.program import LogitSamples
from ntkit.errors import Problem, UnsupportedLayerError

from ._builder import EMPIRICAL, Builder, Refused
from ._gains import GainRule
from ._graph import Computing, checked_prefix
from ._nodes import (
    NUMBERS_OF_DATA,
    ROOT,
    ancestors,
    attribute,
    call_node,
    check_overwritten,
    live_nodes,
    path_of,
    reads_shape,
    shape_from_values,
    taken_apart,
    target_name,
    without_tensors,
)
from ._parameters import fixed
from ._replay import Difference
from ._values import BATCH, Computed, Data, Derived, Field, Unknown, Weight, concrete
from .matchers._dot_product import WRITE_ATTENTION, Heads, feeds_attention, rearranged_heads
from .matchers._registry import Matcher, find, find_module


class Reader:
    """Reads one graph with one example."""

    def __init__(
        self,
        graph: fx.GraphModule,
        example: Tensor,
        gains: GainRule,
        deterministic: frozenset[str],
        samples: LogitSamples | None = None,
        training: frozenset[str] = frozenset(),
    ) -> None:
        self.graph, self.example, self.deterministic = graph, example, deterministic
        self.builder = Builder(gains, self._prefix, len(example), samples, training)
        self.problems: list[Problem] = []
        self.value: Any = Unknown()
        self._values: dict[fx.Node, Any] = {}
        self._ragged: set[fx.Node] = set()  # data whose shape depends on its values
        self._feeding = feeds_attention(graph)

    @property
    def fields(self) -> dict[Any, Field]:
        """The random values of the graph by node, the output's by None."""
        found: dict[Any, Field] = {node: value for node, value in self._values.items() if isinstance(value, Field)}
        return {**found, None: self.value}

    def read(self, output: Any) -> None:
        """Read the graph; ``output`` is the module's output for the example."""
        value = self._read()
        if isinstance(value, tuple) and len(value) == 1 and isinstance(output, Tensor):
            value = value[0]  # an exported graph returns a tuple
        self.value = value
        if self.problems or isinstance(value, Field):
            return
        reason, instead = "its output is heads of attention side by side, not channels", WRITE_ATTENTION
        if not isinstance(value, Heads):
            kind = "computed from the input alone" if isinstance(value, Data) else f"a {type(output).__name__}"
            reason = f"its output is {kind}, not one tensor computed by layers with weights"
            instead = "return one tensor that depends on an nn.Linear or nn.Conv layer"
        self.problems.append(Problem(ROOT, type(self.graph).__name__, reason, instead))

    def refuse(self) -> None:
        """Raise an error with all problems found."""
        if self.problems:
            raise UnsupportedLayerError(tuple(self.problems))

    def problem(self, module: nn.Module, difference: Difference) -> Problem:
        """Report where the module differs from what was read."""
        path = ROOT if difference.node is None else path_of(difference.node)
        owner = module if path == ROOT else self.graph.get_submodule(path)
        what = type(module).__name__ if difference.node is None else target_name(self.graph, difference.node)
        hooked = sorted(name or ROOT for name, layer in module.named_modules() if _hooks(layer))
        causes = "forward hooks" if _hooks(owner) else "in-place changes, side effects, hooks or randomness"
        found = f" (hooks are on {', '.join(hooked)})" if hooked and not _hooks(owner) else ""
        return Problem(
            path,
            what,
            f"its traced operations do not reproduce it: {difference.what}; {causes} that tracing cannot see{found}",
            f"write the forward as a function of its input alone, without hooks that change values; or {EMPIRICAL}",
        )

    def _read(self) -> Any:
        result: Any = Unknown()
        live = live_nodes(self.graph)
        for node in self.graph.graph.nodes:
            self.builder.path = path_of(node)
            if node not in live:
                self._values[node] = Unknown()
                continue
            if node.op == "output":
                result = fx.node.map_arg(node.args[0], lambda n: self._values[n])
                break
            try:
                self._values[node] = self._evaluate(node)
            except Refused as refused:
                problem = taken_apart(node) or Problem(
                    path_of(node), target_name(self.graph, node), refused.reason, refused.instead
                )
                if problem not in self.problems:
                    self.problems.append(problem)
                self._values[node] = self._stand_in(node, refused.then)
        return result

    def _evaluate(self, node: fx.Node) -> Any:
        if node.op == "placeholder":  # the only one: both ways of tracing call the forward with one tensor
            return Data(self.example.clone(), node)
        if node.op == "get_attr":
            return self._attribute(str(node.target))
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._values[n])
        if node.target is operator.getitem and isinstance(args[0], (tuple, list)):
            values: Any = args[0]
            return values[args[1]]
        leaves = _leaves((args, kwargs))
        module = self.graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        matcher, own = self._matcher(node, module)
        if any(isinstance(leaf, Unknown) for leaf in leaves):
            if matcher is not None and matcher.refuses:
                matcher.build(self.builder, *args, **kwargs, **own)
            return Unknown()
        if any(isinstance(leaf, (Field, Heads)) for leaf in leaves):
            check_overwritten(self.graph, node)
            try:
                attends = matcher is not None and "scaled_dot_product_attention" in matcher.functions
                if attends or not any(isinstance(leaf, Heads) for leaf in leaves):
                    return self._build(matcher, node, args, kwargs, own)
            except Refused:
                if node not in self._feeding:
                    raise
            return rearranged_heads(target_name(self.graph, node), leaves, partial(self._run, node, args, kwargs))
        if any(isinstance(leaf, Data) for leaf in leaves):
            drawn = module is None or not fixed(str(node.target), self.deterministic)
            if matcher is not None and matcher.fresh and isinstance(leaves[0], Data) and drawn:
                return self._build(matcher, node, args, kwargs, own)
            try:
                return self._run_on_data(node, module, args, kwargs, leaves)
            except Refused:
                trained = module is not None and any(p.requires_grad for p in module.parameters())
                says_more = module is None or (isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and trained)
                if says_more and matcher is not None and matcher.refuses:  # about itself
                    matcher.build(self.builder, *args, **kwargs, **own)
                raise
        if matcher is not None and matcher.fresh and leaves and isinstance(leaves[0], Tensor) and node.args:
            read = node.args[0]  # a state of zeros, as many as inputs: data that do not depend on the input's values
            if isinstance(read, fx.Node) and any(n.op == "placeholder" for n in ancestors([read])):
                return self._build(matcher, node, (Data(leaves[0], read), *args[1:]), kwargs, own)
        return self._run_on_constants(node, module, args, kwargs, leaves)

    def _stand_in(self, node: fx.Node, then: Any) -> Any:
        """Return a value of the right shape with which the analysis continues after a refusal: ``then``, or a Gaussian one."""
        shape = node.meta.get("ntkit_shape")
        if isinstance(then, (tuple, Heads)) or shape is None or (isinstance(then, Field) and then.shape == shape):
            return Unknown() if then is None else then
        read = next((self._values[n] for n in node.all_input_nodes if isinstance(self._values[n], Field)), None)
        like = then if isinstance(then, Field) else read
        if like is None or len(like.dims) != len(shape) or like.core(0) != (BATCH,) or len(shape) < 2:
            return Unknown()
        return self.builder.stand_in(shape, like.channel_dim)

    def _matcher(self, node: fx.Node, module: nn.Module | None) -> tuple[Matcher | None, dict[str, Any]]:
        if module is not None:
            found = find_module(module)
            if found is None:
                return None, {}
            own = found.arguments(module, str(node.target))
            return found.matcher, {name: self._settled(value) for name, value in own.items()}
        operator_of_torch = isinstance(node.target, torch._ops.OpOverload)
        return find(target_name(self.graph, node) if operator_of_torch else node.target), {}

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
        except TypeError as error:  # an argument unknown to the matcher
            raise Refused(
                f"called with arguments that have no rule ({error})", "call it with its usual arguments"
            ) from error

    def _run_on_data(self, node: fx.Node, module: nn.Module | None, args: Any, kwargs: Any, leaves: list[Any]) -> Any:
        """Run what comes before the first random layer unchanged."""
        check_overwritten(self.graph, node)
        weights = [leaf for leaf in leaves if isinstance(leaf, Weight)]
        if module is not None:
            owned = [Weight(f"{node.target}.{name}", p) for name, p in module.named_parameters()]
            weights += [weight for weight in owned if not fixed(weight.path, self.deterministic)]
        if any(weight.trained for weight in weights) or any(isinstance(leaf, Computed) for leaf in leaves):
            raise Refused(
                f"trained parameters {[weight.path for weight in weights if weight.trained]} act on raw data before the first "
                "layer with weights; there are only as many raw channels as the data has, so their gradient stays random",
                "put an nn.Linear or nn.Conv layer before it, or leave out its parameters (elementwise_affine=False)",
            )
        if weights:
            paths = [weight.path for weight in weights]
            named = paths[0] if module is None else str(node.target)
            raise Refused(
                f"the frozen parameters {paths} act on raw data before the first layer with weights; a frozen parameter is "
                "random but not trained, and there is no rule for what it does here",
                f"if their present values are meant, say so: deterministic=({named!r},), or register them as buffers; or "
                + EMPIRICAL,
            )
        value = self._run(node, args, kwargs)
        ragged = any(n in self._ragged for n in node.all_input_nodes)
        if ragged or shape_from_values(node, fx.node.map_aggregate(args, _concrete)):
            self._ragged.add(node)
        if without_tensors(value) and (ragged or not reads_shape(node)):
            raise Refused(NUMBERS_OF_DATA, f"compute with tensors, without .item() and .tolist(); or {EMPIRICAL}")
        return value if value is None or without_tensors(value) else Data(value, node)

    def _run_on_constants(
        self, node: fx.Node, module: nn.Module | None, args: Any, kwargs: Any, leaves: list[Any]
    ) -> Any:
        if "set_grad_enabled" in target_name(self.graph, node):
            raise Refused(
                "it switches gradients off or on inside the forward, so that trained parameters are not trained through it",
                "freeze parameters with requires_grad_(False) instead of torch.no_grad()",
            )
        value = self._run(node, args, kwargs)
        if any(isinstance(leaf, Computed) or (isinstance(leaf, Weight) and leaf.trained) for leaf in leaves):
            return self._computed(node, value)
        if isinstance(module, nn.Embedding) and not fixed(f"{node.target}.weight", self.deterministic):
            return self._computed(node, value)
        return value

    def _computed(self, node: fx.Node, value: Any) -> Computed:
        """Return a value computed from parameters alone, with its computation."""
        weights: dict[str, Weight] = {}
        kinds: set[bool] = set()
        for read in node.all_input_nodes:
            own = self._values[read]
            if isinstance(own, Computed):
                weights |= {weight.path: weight for weight in own.weights}
                kinds.add(own.random)
            elif isinstance(own, Weight):
                weights[own.path] = own
                kinds.add(False)
        if node.op == "call_module":
            table = self.graph.get_submodule(str(node.target)).weight
            assert isinstance(table, Tensor)
            weights[f"{node.target}.weight"] = Weight(f"{node.target}.weight", table)
            kinds.add(True)
        if len(kinds) > 1:
            raise Refused(
                "it combines an embedding with a parameter that has its own values",
                "add them to the tokens one after the other",
            )
        return Computed(value, partial(self._recompute, node), tuple(weights.values()), kinds == {True})

    def _recompute(self, node: fx.Node, read: Callable[[Weight], Tensor]) -> Any:
        """Recompute a node that depends only on parameters with other values of them."""
        value = self._values[node]
        if isinstance(value, Weight):
            return read(value)
        if not isinstance(value, Computed):
            return _concrete(value)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self._recompute(n, read))
        if node.op == "call_module":
            layer = self.graph.get_submodule(str(node.target))
            assert isinstance(layer, nn.Embedding)
            weight = next(weight for weight in value.weights if weight.path == f"{node.target}.weight")
            index: Any = args[0]
            return nn.functional.embedding(index, read(weight), layer.padding_idx)
        return call_node(self.graph, node, args, kwargs)

    def _run(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        args, kwargs = fx.node.map_aggregate((args, kwargs), _concrete)
        try:
            with torch.no_grad():
                return call_node(self.graph, node, args, kwargs)
        except Exception as error:  # constants stand for the module's own
            raise Refused(
                f"it cannot be run on constants ({error})", f"write it on tensors of layers; or {EMPIRICAL}"
            ) from error

    def _attribute(self, path: str) -> Any:
        value = attribute(self.graph, path)
        return self._settled(Weight(path, value)) if isinstance(value, nn.Parameter) else value

    def _settled(self, value: Any) -> Any:
        """Return the value of a parameter that is declared deterministic."""
        declared = isinstance(value, Weight) and fixed(value.path, self.deterministic)
        return value.parameter.detach() if declared else value

    def _prefix(self, node: object) -> nn.Module | None:
        if isinstance(node, Derived):
            return Computing(self._prefix(node.node), node.function)
        assert isinstance(node, fx.Node)
        return checked_prefix(self.graph, node, self.example, target_name(self.graph, node))


def _concrete(value: Any) -> Any:
    if isinstance(value, (Heads, Field)):
        return (Heads.of(value) if isinstance(value, Field) else value).index
    return concrete(value)


def _leaves(structure: Any) -> list[Any]:
    found: list[Any] = []
    fx.node.map_aggregate(structure, lambda leaf: found.append(leaf))
    return found


def _hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks)
