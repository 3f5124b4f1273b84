"""Linear layers, and what all layers with weights have in common: reading, checking and applying their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.common import parameter_source
from ntkit._src.program import Dense

from .._builder import EMPIRICAL, Builder, Held, Refused
from .._layout import entry_numbers, rearranged
from .._values import BATCH, CHANNEL, Block, Data, Field, Weight
from ._registry import ModuleArguments, matches

__all__: list[str] = []


def layer_parameters(
    module: nn.Module, path: str, names: Sequence[str] = ("weight", "bias")
) -> dict[str, Weight | None]:
    """Read the weight and the bias of a layer, or other parameters by their names."""
    prefix = f"{path}." if path else ""
    found: dict[str, Weight | None] = {}
    for name in names:
        source = parameter_source(module, name)
        found[name] = None if source is None else Weight(prefix + name, source.value, source.computed_by, source.remedy)
    return found


def with_parameters(*attributes: str, names: Sequence[str] = ("weight", "bias")) -> ModuleArguments:
    """Return the function that reads the parameters of a layer and some of its attributes."""
    return lambda module, path: {
        **layer_parameters(module, path, names),
        **{name: getattr(module, name) for name in attributes},
    }


def check_plain(*weights: Weight | None, then: Field) -> None:
    """Refuse weights that something computes; the analysis continues with ``then``, the result of plain weights."""
    for weight in weights:
        if weight is not None and weight.computed_by:
            name = weight.path.rpartition(".")[2]
            raise Refused(
                f"its {name} is computed by {weight.computed_by}, so its distribution is not that of a plain parameter",
                f"remove that: {weight.remedy}; or {EMPIRICAL}",
                then,
            )


def checked_weights(weight: object, bias: object) -> tuple[Weight, Weight | None]:
    """Refuse weights that are not parameters."""
    if not isinstance(weight, Weight) or not (bias is None or isinstance(bias, Weight)):
        raise Refused(
            "its weights are computed, or fixed numbers, not parameters, so their distribution is not known",
            f"use nn.Linear or nn.Conv layers; or {EMPIRICAL}",
        )
    return weight, bias


def held(weight: Weight, bias: Weight | None, numbers: Tensor) -> Held:
    """Apply a weight with its columns in the order of the finite form, and a bias."""
    return lambda read: (rearranged(read(weight), numbers, 1), None if bias is None else read(bias))


@matches(
    F.linear,
    "linear",
    modules={nn.Linear: layer_parameters},
    family="linear",
    note="on vectors and at every position of (n, positions..., features)",
    fresh=True,
)
def linear(builder: Builder, x: Any, weight: object, bias: object = None) -> Field:
    """K' = w^2 K + b^2 at every position; positions that were flattened into the features are averaged over."""
    weight, bias = checked_weights(weight, bias)
    if isinstance(x, Data):
        x = builder.data_field(x, x.value.ndim - 1)
    last = len(x.dims) - 1
    if CHANNEL not in x.dims[last]:
        raise Refused(
            "it acts along a position axis, so every channel shares its weights and they do not average out",
            "move the channels to the last dimension first",
        )
    if BATCH in x.dims[last]:
        raise Refused("its input has the batch merged into the features", "keep the batch in dimension 0")
    width, fan_in = weight.parameter.shape
    contracted = [atom for atom in x.dims[last] if atom >= 0]
    joined = builder.join(x, contracted)
    positions = builder.nodes[joined].positions
    numbers = entry_numbers(builder, x, x.dims[last])
    op = Dense(builder.layer_gains(weight, bias, fan_in))
    node = builder.add(op, (joined,), positions, held=held(weight, bias, numbers))
    kept = [axis for axis in range(len(x.positions)) if axis not in contracted]
    dims = [tuple(kept.index(atom) if atom >= 0 else atom for atom in dim) for dim in x.dims[:-1]]
    result = Field((Block(node, width),), positions, (*dims, (CHANNEL,)), width, x.batch)
    check_plain(weight, bias, then=result)
    return result
