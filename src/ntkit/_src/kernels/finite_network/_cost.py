"""The cost of each method in multiplications, counted from the sizes of the layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from torch import nn

from ._structured import row_plan
from ._survey import Survey

# Measured costs relative to one multiplication in a large matrix product:
_VMAP = 3.0  # a multiplication in vmap's derivatives, which consist of many small products and grouped convolutions
_PASS = 8.0  # reading or writing one entry of a derivative, which products with vectors do for each column
_TRANSFORMS = 10.0  # a call under vmap and jacrev, relative to a plain call
_CALL = 4e5  # calling one module, forward and backward: some 20 microseconds, whatever the sizes


def costs(survey: Survey, n1: int, n2: int | None) -> dict[str, float]:
    """Estimate the multiplications of each method for n1 x n2 entries; ``n2=None`` is the symmetric case."""
    # With N rows, c outputs, p parameters and F multiplications per row in the forward pass: derivatives cost 2 N F c for every
    # tile of rows that the budget forces, plus p c per pair (p c^2 if outputs are kept separate). Products with vectors cost
    # 4 F c per pair and p c per column. The structured method costs N F (1 + c), plus its layers' products, plus derivatives for
    # the remaining parameters. Each pass through the network also costs something per module, which decides for small networks.
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
    """Count the multiplications of one row's forward pass; parameters outside the structured layers count one each."""
    tables = {
        id(layer.weight)
        for layer in survey.network.module.modules()
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))
    }  # embeddings look rows up and multiply nothing
    trained = survey.network.trained
    rest = sum(sizes[name] for name in survey.rest if id(trained[name]) not in tables)
    return rest + sum(
        layer.sizes.positions * layer.sizes.groups * layer.sizes.fan_in * layer.sizes.fan_out for layer in survey.layers
    )
