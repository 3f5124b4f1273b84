"""The proof that a program equals the module: replayed as a finite network, it must give the module's values and derivatives.

The kernel is that of the program, so anything in the module that the program lacks (hooks, overridden forwards, values of
affine parameters, detached gradients) would make it the kernel of another network. Replayed with the module's own
parameters, the program must reproduce every traced value of the module, its output, and the output's derivative with
respect to every trained parameter, all to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from ntkit.errors import InputError

from ._builder import Builder
from ._graph import ONE_BATCH
from ._layout import tensor_of
from ._packed import Packed
from ._values import Field, Weight

_DIGITS = {torch.float64: 1e-9, torch.float32: 1e-3}  # rounding, relative to the largest entry of each input's values
_BATCHES = (1, 3, 200)  # for code that branches on the size of the batch
_COARSE = 0.05  # for lower precision
_ROUNDINGS = 256  # rounding errors of the largest derivative allowed in derivatives that are sums of many terms
# Scales of the two probe inputs, with the module's own parameters and with fresh ones.
SCALES = ((1.0, 8.0), (0.1, 2.0))


class Difference(Exception):
    """Raised if the program does not reproduce a value of the module, at ``node``; None for the output as a whole."""

    def __init__(self, what: str, node: fx.Node | None = None) -> None:
        super().__init__(what)
        self.what, self.node = what, node


class NotFinite(InputError):
    """Raised if a module's output is never finite, so that nothing can be compared."""


class FiniteNetwork:
    """A program with the parameters of its module; ``fields`` are the graph's random values by node, the output's by None."""

    def __init__(
        self, builder: Builder, prefixes: Sequence[Callable[[Tensor], Tensor] | None], fields: Mapping[Any, Field]
    ) -> None:
        self.builder, self.prefixes, self.fields = builder, prefixes, fields

    def values(self, x: Tensor, read: Callable[[Weight], Tensor]) -> list[Tensor]:
        """Return the value of every node for inputs x with parameters as read, each (n, *positions, channels)."""
        data = [x if prefix is None else prefix(x.clone()) for prefix in self.prefixes]
        values: list[Tensor] = []
        for index, node in enumerate(self.builder.nodes):
            inputs = tuple(values[i] for i in node.inputs)
            if index in self.builder.parts and inputs[0].shape[-1] > 1:
                inputs = (inputs[0][..., slice(*self.builder.parts[index])],)
            number = getattr(node.op, "prefix", None)
            if number is not None:
                inputs = (*inputs, data[number])
            held = self.builder.held.get(index)
            value = node.op.finite(inputs, (None, None) if held is None else held(read))
            values.append(value.to(x.dtype) if x.is_floating_point() else value)
        return values


def replay(module: nn.Module, graph: fx.GraphModule, network: FiniteNetwork, example: Tensor, seed: int) -> None:
    """Compare a module with the program read from it, first with its own parameters and then with fresh ones.

    The module's own parameters may be zero, and a constant taken from a random parameter shows only when that is redrawn. The
    graph has the module's parameters, which are overwritten. Raises a Difference for the first value that differs.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for run, scales in enumerate(SCALES):
        if run == 1:
            redraw((parameters[weight.path] for weight, _ in network.builder.random), seed)
        x = probe(module, example, scales)
        if x is None and run == 0:
            continue  # the values of random parameters do not matter, not even infinite ones
        if x is None:
            raise NotFinite(
                "the module's output is NaN or infinite for inputs of usual size, so the kernel cannot be checked. "
                "Check its buffers and operations; check=False skips the check."
            )
        state = {name: value.clone() for name, value in _state(module)}
        comparison = _Comparison(graph, network, network.values(x, lambda weight: parameters[weight.path]))
        with torch.no_grad():
            comparison.run(x.clone())
        output = module(x.clone())
        if not isinstance(output, Tensor):
            raise Difference(f"its output is a {type(output).__name__}")
        program = comparison.tensor(None)
        check_close(output, program, "its output", None)
        with torch.no_grad():
            check_close(module(x.clone()), output, "the output of a second call", None)
        if run == 1:
            compare_derivatives(module, output, program)
            if graph.meta.get(ONE_BATCH):
                _compare_batches(module, x, output)
        for name, value in _state(module):
            before = state[name]
            if not (torch.equal(value, before) or torch.equal(value.nan_to_num(), before.nan_to_num())):
                raise Difference(f"its forward changes its own {name!r}, also in evaluation mode")


def _state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and buffers, among them those that are not saved."""
    yield from module.named_parameters()
    yield from module.named_buffers()


class _Comparison(fx.Interpreter):
    """Runs the graph and compares each of its random values with that of the program."""

    def __init__(self, graph: fx.GraphModule, network: FiniteNetwork, values: Sequence[Tensor]) -> None:
        super().__init__(graph)
        self.network, self.finite = network, values

    def tensor(self, node: fx.Node | None) -> Tensor:
        """Return the program's value of a node of the graph; None: of the output."""
        return tensor_of(self.network.builder, self.network.fields[node], self.finite)

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n in self.network.fields and isinstance(value, Tensor):
            check_close(value, self.tensor(n), "its values", n)
        return value


def _compare_batches(module: nn.Module, x: Tensor, output: Tensor) -> None:
    """Compare the outputs of inputs in batches of other sizes."""
    for size in _BATCHES:
        rows = torch.arange(size, device=x.device) % len(x)
        try:
            with torch.no_grad():
                given = module(x[rows])
        except Exception as error:  # the module's own code may raise anything
            if size == 1:
                continue
            raise Difference(f"it does not take a batch of {size} inputs ({error})") from error
        if size > 1 or given.shape == output[rows].shape:  # squeeze() drops the batch of a single input
            check_close(given, output[rows], f"its output in a batch of {size} inputs", None)


def compare_derivatives(module: nn.Module, output: Tensor, program: Tensor) -> None:
    """Compare the derivatives of a random sum of outputs with respect to the trained parameters."""
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    if not trained:
        return
    finite = torch.isfinite(output) & torch.isfinite(program)
    weights = torch.randn(output.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(output)
    gradients: list[tuple[Tensor | None, ...]] = []
    for value in (output, program):
        total = (torch.where(finite, value, 0) * weights).sum()
        if not total.requires_grad:
            gradients.append((None,) * len(trained))
            continue
        try:
            gradients.append(torch.autograd.grad(total, list(trained.values()), allow_unused=True))
        except RuntimeError as error:
            if "heaviside is not implemented" not in str(error):
                raise
            return  # a tangent kernel through it is refused by its rule, and the NNGP kernel needs values alone
    known = [g.detach().nan_to_num(0.0, 0.0, 0.0) for both in gradients for g in both if g is not None and g.numel()]
    # Softmax ignores the bias of the keys: its derivative is zero, computed as rounding errors of the others.
    rounding = _ROUNDINGS * torch.finfo(output.dtype).eps * max((float(g.abs().max()) for g in known), default=0.0)
    for name, own, its in zip(trained, *gradients, strict=True):
        zeros = torch.zeros_like(trained[name])
        check_close(
            (zeros if own is None else own)[None],
            (zeros if its is None else its)[None],
            f"the derivative in the trained parameter {name!r}",
            None,
            rounding,
        )


def check_close(value: Tensor, expected: Tensor, what: str, node: fx.Node | None, rounding: float = 0.0) -> None:
    """Raise an error if two tensors differ by more than rounding, which is at least ``rounding``."""
    if value.shape != expected.shape:
        raise Difference(f"they give {what} of shape {tuple(expected.shape)}, not {tuple(value.shape)}", node)
    if value.numel() == 0:
        return
    digits = _DIGITS.get(value.dtype if value.is_floating_point() else torch.float64, _COARSE)
    first, second = (tensor.detach().to(torch.float64).flatten(1) for tensor in (value, expected))
    # NaN and infinite values must be in the same places.
    usual = torch.isfinite(first) & torch.isfinite(second)
    if not bool(usual.all()):
        marked = (row.nan_to_num(nan=0.5, posinf=1.0, neginf=-1.0) for row in (first, second))
        first, second = (torch.where(usual, row, mark) for row, mark in zip((first, second), marked, strict=True))
    error, size = (first - second).abs().amax(1), torch.maximum(first.abs().amax(1), second.abs().amax(1))
    if not bool((error <= digits * size + rounding).all()):
        raise Difference(f"they give {what} with an error of {float((error / size).nan_to_num().max()):.1g}", node)


def probe(module: Callable[[Tensor], Any], example: Tensor, scales: Sequence[float]) -> Tensor | None:
    """Return inputs of several scales and signs, or positive ones if the module's output would not be finite; else None."""
    if not example.is_floating_point():
        return example
    for positive in (False, True):
        x = example.abs() + 0.1 if positive else example
        rows = torch.tensor(scales, dtype=x.dtype, device=x.device).reshape(-1, *(1,) * (x.ndim - 1))
        x = module.scale(x, rows) if isinstance(module, Packed) else x * rows
        with torch.no_grad():
            output = module(x.clone())
        if isinstance(output, Tensor) and bool(torch.isfinite(output).any()):
            return x
    return None


def redraw(parameters: Iterable[Tensor], seed: int) -> None:
    """Redraw parameters, since zeros hide differences, scaled so that values keep their magnitude."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            fan_in = parameter[0].numel() if parameter.ndim > 1 else 4
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(draw / max(fan_in, 1) ** 0.5)
