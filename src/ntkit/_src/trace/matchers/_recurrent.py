"""Recurrent layers as their calls in time: h_t = phi(W_x x_t + b_x + W_h h_{t-1} + b_h), with the same weights at every step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from .._builder import Builder, Refused, tensor_number
from .._nodes import target_name
from .._values import BATCH, CHANNEL, Data, Field
from ._arithmetic import add, concatenate, scaled
from ._linear import layer_parameters, linear
from ._positions import getitem
from ._registry import find, matches


def _arguments(module: nn.Module, path: str) -> Mapping[str, Any]:
    assert isinstance(module, (nn.RNNBase, nn.RNNCellBase))
    names = [name for name, _ in module.named_parameters(recurse=False)]
    return {"layer": module, **layer_parameters(module, path, names)}


@matches(
    modules={nn.RNN: _arguments, nn.RNNCell: _arguments},
    family="recurrent",
    note="tanh or ReLU; several layers, both directions, from a state of zeros; cells called in a loop. Any `nn.Linear` or "
    "convolution may be called more than once",
    fresh=True,
)
def recurrent(builder: Builder, x: Any, hx: Any = None, *, layer: nn.Module, **weights: Any) -> Any:
    """Return the states of the last layer at all steps and the last ones of all layers; a cell returns its next state."""
    if isinstance(layer, nn.RNNCell):
        return _cell(builder, layer, x, hx, "", weights)
    assert isinstance(layer, nn.RNN)
    if hx is not None and tensor_number(hx) != 0:
        raise Refused(
            "its initial state is not a constant of zeros", "leave the state out, or call an nn.RNNCell in a loop"
        )
    x = _batch_first(builder, x, layer.batch_first)
    steps, last = x.shape[1], []
    for number in range(layer.num_layers):
        directions = []
        for suffix in ("", "_reverse")[: 2 if layer.bidirectional else 1]:
            name = f"_l{number}{suffix}"
            given = _half(builder, layer, x, "ih", name, weights)
            state, states = scaled(builder, getitem(builder, given, (slice(None), 0)), 0.0), {}
            for t in range(steps) if suffix == "" else reversed(range(steps)):
                own = _half(builder, layer, state, "hh", name, weights)
                state = _activated(builder, layer, add(builder, getitem(builder, given, (slice(None), t)), own))
                states[t] = state
            directions.append(concatenate(builder, [states[t].unsqueeze(1) for t in range(steps)], 1))
            last.append(state)
        x = concatenate(builder, directions, 2)
    final = concatenate(builder, [state.unsqueeze(0) for state in last], 0)
    return (x if layer.batch_first else x.with_dims([x.dims[1], x.dims[0], x.dims[2]])), final


def _cell(builder: Builder, layer: nn.RNNCell, x: Any, state: Any, name: str, weights: Mapping[str, Any]) -> Field:
    given = _half(builder, layer, x, "ih", name, weights)
    if state is None or tensor_number(state) == 0:
        state = scaled(builder, given, 0.0)
    return _activated(builder, layer, add(builder, given, _half(builder, layer, state, "hh", name, weights)))


def _half(builder: Builder, layer: Any, x: Any, which: str, name: str, weights: Mapping[str, Any]) -> Field:
    """Apply the weights of the input or those of the state; PyTorch draws both from U(-1, 1) / sqrt(width of the state)."""
    weight = weights[f"weight_{which}{name}"]
    gain = (1.0 / (3 * layer.hidden_size)) ** 0.5
    fan_in = weight.parameter.shape[1]
    return linear(builder, x, weight, weights.get(f"bias_{which}{name}"), (fan_in**0.5 * gain, gain))


def _activated(builder: Builder, layer: Any, x: Field) -> Field:
    matcher = find(torch.tanh if layer.nonlinearity == "tanh" else torch.relu)
    assert matcher is not None
    result: Field = matcher.build(builder, x)
    return result


def _batch_first(builder: Builder, x: Any, batch_first: bool) -> Field:
    """Read the input as a field (batch, steps, channels)."""
    wrong = Refused(
        "it expects inputs of shape (batch, steps, channels) if batch_first=True, else (steps, batch, channels)",
        "build it with batch_first=True; or give it x.transpose(0, 1) of the module's input",
    )
    if isinstance(x, Data):
        moved = isinstance(x.node, fx.Node) and x.node.all_input_nodes and target_name(nn.Module(), x.node) in _TURNED
        if x.value.ndim != 3 or not (batch_first or moved):
            raise wrong
        if not batch_first:
            assert isinstance(x.node, fx.Node)
            x = Data(x.value.transpose(0, 1), x.node.all_input_nodes[0])
        return builder.data_field(x, 2)
    if len(x.dims) != 3:
        raise wrong
    field: Field = x if batch_first else x.with_dims([x.dims[1], x.dims[0], x.dims[2]])
    if field.core(0) != (BATCH,) or field.core(2) != (CHANNEL,):
        raise wrong
    return field


_TURNED = ("transpose", "permute", "swapaxes", "swapdims", "movedim", "moveaxis")
