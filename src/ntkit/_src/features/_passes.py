"""A forward pass that records the calls of a module's layers, and the derivatives of the outputs there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call

from ntkit._src.kernels.finite_network import Call, Layer, read_gradients, read_patches

from ._attention import called_projections


@dataclass(frozen=True, eq=False)
class LayerCall:
    """One call of a layer: the layer, its input (empty unless kept), and where the gradient of W x + b arrives."""

    call: Call
    read: GradientEdge | None  # where the gradient of its input arrives, from all uses of it; None unless requested
    features_entries: int  # of its input

    @property
    def output_shape(self) -> torch.Size:
        """Shape of W x + b."""
        return self.call.output_shape


@dataclass(frozen=True, eq=False)
class Pass:
    """The outputs of a module on n samples, with their graph, and the calls of some of its layers."""

    values: Tensor  # shape (n, c)
    calls: dict[str, list[LayerCall]]  # by path, in order; only of layers that were called
    weights: dict[str, Tensor]  # in use, by path, shape (out, in * window): block diagonal for a grouped convolution

    def gradients(self, slope: Tensor, keep: bool, read: bool = False) -> dict[str, list[Tensor | None]]:
        """Pull a slope dL/df, shape (n, c), back to every call's output or input (``read``); None where it does not arrive."""
        edges = [call.read if read else call.call.edge for calls in self.calls.values() for call in calls]
        found = iter(torch.autograd.grad(self.values, edges, slope, retain_graph=keep, allow_unused=True))  # type: ignore[arg-type]
        return {path: [next(found) for _ in calls] for path, calls in self.calls.items()}

    def jacobians(self, keep: bool = False) -> Iterator[dict[str, Tensor]]:
        """Yield J = df_o/dh for each output o in turn: by path, shape (n, P, out), calls concatenated along P."""
        for output in range(self.values.shape[1]):
            last = output == self.values.shape[1] - 1 and not keep
            yield {path: self.join(path, found) for path, found in self.output_gradients(output, not last).items()}

    def output_gradients(self, output: int, keep: bool, read: bool = False) -> dict[str, list[Tensor | None]]:
        """Return the derivative of one output of every sample at every call."""
        slope = torch.zeros_like(self.values)
        slope[:, output] = 1
        return self.gradients(slope, keep, read)

    def join(self, path: str, gradients: list[Tensor | None]) -> Tensor:
        """Concatenate the gradients of a layer's calls into one tensor, shape (n, P, out)."""
        return _joined([part.flatten(1, 2).transpose(1, 2) for part in self.split(path, gradients)], 1)

    def split(self, path: str, gradients: list[Tensor | None]) -> list[Tensor]:
        """Reshape the gradients of a layer's calls to (n, groups, out / groups, P)."""
        n = len(self.values)
        parts = []
        for call, gradient in zip(self.calls[path], gradients, strict=True):
            if gradient is None:
                gradient = self.values.new_zeros(call.output_shape)
            parts.append(read_gradients(call.call, gradient[:, None], n)[:, 0])
        return parts

    def patches(self, path: str) -> Tensor:
        """Return the patches that a layer's weight was applied to, shape (n, groups, P, in * window / groups)."""
        return _joined([read_patches(call.call, len(self.values)) for call in self.calls[path]], 2)


def run(
    module: nn.Module,
    x: Tensor,
    layers: Mapping[str, Layer],
    state: Mapping[str, Tensor] | None = None,
    features: bool = False,
    total: bool = False,
) -> Pass:
    """Run the module on samples x, shape (n, ...), with its own parameters and buffers or those of ``state``.

    Frozen layers are differentiated too. ``features`` keeps the layers' inputs, ``total`` where gradients of those arrive.
    """
    calls: dict[str, list[LayerCall]] = {}
    weights: dict[str, Tensor] = {}
    names = {layer: path for path, layer in layers.items()}

    def before(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = args[0] if args else kwargs["input"]
        if given.requires_grad:
            return None
        given = given.detach().requires_grad_()
        return ((given, *args[1:]), kwargs) if args else (args, {**kwargs, "input": given})

    def after(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> Tensor:
        path, own = names[layer], layers[names[layer]]  # type: ignore[index]
        given: Tensor = args[0] if args else kwargs["input"]
        if not output.requires_grad:
            output = output.detach().requires_grad_()
        if output.is_leaf or output._is_view():
            output = output.clone()  # otherwise it could not be overwritten, or its edge would leave the graph
        kept = given.detach().clone() if features else given.detach()[:0]
        call = Call(own, kept, given._version, get_gradient_edge(output), output.shape)
        calls.setdefault(path, []).append(LayerCall(call, get_gradient_edge(given) if total else None, given.numel()))
        if path not in weights:
            weights[path] = dense_weight(own)
        return output

    with ExitStack() as stack:
        stack.enter_context(called_projections(module))
        for layer in layers.values():
            # Runs before the user's forward hooks, which may change the layer's output.
            stack.callback(layer.register_forward_hook(after, prepend=True, with_kwargs=True).remove)
            if total:
                stack.callback(layer.register_forward_pre_hook(before, with_kwargs=True).remove)
        with torch.enable_grad():
            x = x.detach().requires_grad_() if total and x.is_floating_point() else x.detach()
            values: Tensor = (
                module(x) if state is None else functional_call(module, dict(state), (x,), tie_weights=False)
            )
            values = values.flatten(1) if values.ndim > 1 else values[:, None]
    return Pass(values, calls, weights)


def dense_weight(layer: Layer) -> Tensor:
    """Return the weight that a layer applies to each patch as a matrix, shape (out, in * window), detached."""
    with torch.no_grad():
        weight = layer.weight.detach().flatten(1)
        groups = 1 if isinstance(layer, nn.Linear) else layer.groups
        return weight.clone() if groups == 1 else torch.block_diag(*weight.chunk(groups))


def _joined(parts: list[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)
