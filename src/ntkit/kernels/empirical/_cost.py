"""Which method is cheapest: multiplications counted from the sizes of the layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from torch import nn

from ._structured import row_plan
from ._survey import Survey

__all__ = ["costs"]

# Relative to a multiplication in a large matrix product, measured:
_VMAP = 3.0  # one in vmap's derivatives, which are many small products and grouped convolutions
_PASS = 8.0  # reading or writing a parameter's derivative, which products with vectors do for each column
_TRANSFORMS = 10.0  # a call under vmap and jacrev, in plain calls
_CALL = 4e5  # calling one module, forward and its share of the way back: some 20 microseconds, whatever the sizes


def costs(survey: Survey, n1: int, n2: int | None) -> dict[str, float]:
    """Estimate the multiplications of each method, for n1 x n2 entries; None is the symmetric case.

    With N rows, c outputs, p parameters and F multiplications per row in the forward pass: derivatives cost 2 N F c, repeated
    for every tile of rows that the budget forces, and p c for each pair (p c^2 where outputs stay apart). Products with
    vectors cost 4 F c per pair, and p c per column. Structure costs N F (1 + c) and what its layers' products cost, and the
    rest of the parameters as derivatives. Each pass through the network costs something per module on top, which decides for
    small networks: products make a pass per column and output, structure one per tile and output.
    """
    network, c, full = survey.network, survey.outputs, survey.network.full
    sizes = {name: parameter.numel() for name, parameter in network.trained.items()}
    columns = n1 if n2 is None else n2
    rows, pairs = (n1, n1 * (n1 + 1) / 2) if n2 is None else (n1 + n2, float(n1 * n2))
    forward = float(_forward(survey, sizes))
    call = _CALL * sum(1 for _ in network.module.modules())

    def derivatives(names: Sequence[str]) -> float:
        size = sum(sizes[name] for name in names)
        held = max(1.0, survey.byte_budget / (3 * c * (size * survey.like.element_size() + survey.row_bytes)))
        passes = rows * max(1.0, columns / held) * ((1 + 2 * c) * forward + c * size)
        return _VMAP * passes + _TRANSFORMS * call * max(1.0, columns / held) + pairs * size * (c**2 if full else c)

    structured = derivatives(survey.rest) if survey.rest else 0.0
    if survey.layers:
        repeats = ceil(columns / row_plan(survey, rows)[0])
        structured += repeats * (1 + c) * (rows * forward + call)
        for layer in survey.layers:
            formed = layer.sizes.formed_cost(rows * repeats, pairs, c, full)
            structured += min(formed, layer.sizes.paired_cost(pairs, c, full))
    products = (
        4 * pairs * c * forward
        + 4 * columns * c * call
        + _PASS * columns * c * sum(sizes[name] for name in survey.names)
    )
    return {"structured": structured, "jacobian": derivatives(survey.names), "ntk-vp": products}


def _forward(survey: Survey, sizes: dict[str, int]) -> int:
    """Count the multiplications of a row's forward pass: of the rest only the parameters are known, at least one each."""
    tables = {
        id(layer.weight)
        for layer in survey.network.module.modules()
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))
    }  # read, not multiplied
    trained = survey.network.trained
    rest = sum(sizes[name] for name in survey.rest if id(trained[name]) not in tables)
    return rest + sum(
        layer.sizes.positions * layer.sizes.groups * layer.sizes.fan_in * layer.sizes.fan_out for layer in survey.layers
    )
