"""Tangent kernels layer by layer, from each layer's inputs and backpropagated gradients, without forming Jacobians."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from ntkit.errors import InputError

from ._layers import Call, captured, contract, layer_diag, layer_gram, read_gradients, read_patches
from ._network import Inputs
from ._survey import Diagonal, Structured, Survey, Total, slices


@dataclass(frozen=True)
class Side:
    """The graph of some rows: the outputs, and the call of each structured layer."""

    values: Tensor
    calls: list[Call]

    @classmethod
    def of(cls, survey: Survey, x: Inputs) -> Side:
        """Run the network on some rows."""
        with torch.enable_grad(), captured([layer.layer for layer in survey.layers], differentiate=True) as calls:
            values = survey.network(x)
        by_layer = {id(call.layer): call for call in calls}
        ordered = [by_layer[id(layer.layer)] for layer in survey.layers if id(layer.layer) in by_layer]
        rows = [len(x) * layer.copies for layer in survey.layers]
        if len(calls) != len(rows) or any(len(call.features) != n for call, n in zip(ordered, rows, strict=True)):
            raise InputError(
                "the module computes differently on other batches: it calls other layers, or arranges the batch differently. "
                'Write method="jacobian", which works row by row.'
            )
        return cls(values, ordered)

    def gradients(self, outputs: slice) -> list[Tensor]:
        """Return the gradients of some outputs at each layer's output, each of shape (n, s, groups, d, P)."""
        edges = [call.edge for call in self.calls]
        n, found = len(self.values), []
        for o in range(outputs.start, outputs.stop):
            direction = torch.zeros_like(self.values)
            direction[:, o] = 1  # rows do not interact, so one backward pass serves all of them
            found.append(
                torch.autograd.grad(
                    self.values, edges, direction, retain_graph=True, allow_unused=True, materialize_grads=True
                )
            )
        return [
            read_gradients(call, torch.stack([gradients[index] for gradients in found], 1), n)
            for index, call in enumerate(self.calls)
        ]


def structured_gram(survey: Survey, x1: Inputs, x2: Inputs | None, total: Total) -> None:
    """Add the kernel of the structured layers, in tiles of rows and groups of outputs that the byte budget allows."""
    if not survey.layers:
        return
    other = x1 if x2 is None else x2
    rows, s = row_plan(survey, len(x1) + (0 if x2 is None else len(x2)))
    groups = slices(survey.outputs, s)
    tiles = slices(len(other), rows)
    kept = Side.of(survey, other[tiles[0]]) if x2 is not None and len(tiles) == 1 else None
    for rows1 in slices(len(x1), rows):
        side1 = Side.of(survey, x1[rows1])
        for outputs1 in groups:
            gradients1 = side1.gradients(outputs1)
            for rows2 in tiles if x2 is not None else slices(len(x1), rows, rows1.stop):
                same = x2 is None and rows1 == rows2
                side2 = side1 if same else kept or Side.of(survey, other[rows2])
                for outputs2 in groups if survey.network.full else [outputs1]:
                    gradients2 = gradients1 if same and outputs1 == outputs2 else side2.gradients(outputs2)
                    for index, layer in enumerate(survey.layers):
                        first = (side1.calls[index], gradients1[index])
                        second = (side2.calls[index], gradients2[index])
                        _add_layer(survey, layer, first, second, (rows1, outputs1), (rows2, outputs2), total)


def _add_layer(
    survey: Survey,
    layer: Structured,
    first: tuple[Call, Tensor],
    second: tuple[Call, Tensor],
    block1: tuple[slice, slice],
    block2: tuple[slice, slice],
    total: Total,
) -> None:
    (call1, g1), (call2, g2) = first, second
    full = survey.network.full
    n1, n2 = len(g1), len(g2)
    if layer.weight is not None and layer.weight.scale != 0:
        a1 = read_patches(call1, n1)
        a2 = a1 if call2 is call1 else read_patches(call2, n2)
        s, pairs = g1.shape[1], n1 * n2
        rows = n1 if call2 is call1 else n1 + n2
        formed = layer.sizes.formed_cost(rows, pairs, s, full) < layer.sizes.paired_cost(pairs, s, full)
        value = layer_gram((a1, a2), (g1, g2), full, formed, survey.byte_budget // 4)
        total.add(layer.weight.name, layer.weight.scale**2 * value, block1, block2)
    if layer.bias is not None and layer.bias.scale != 0:
        total.add(layer.bias.name, layer.bias.scale**2 * contract(g1.sum(4), g2.sum(4), full), block1, block2)


def structured_diag(survey: Survey, x: Inputs, diagonal: Diagonal) -> None:
    """Add the squared norms of the derivatives with respect to the structured layers' parameters."""
    if not survey.layers:
        return
    rows, s = row_plan(survey, len(x))
    for chunk in slices(len(x), rows):
        side = Side.of(survey, x[chunk])
        for outputs in slices(survey.outputs, s):
            for layer, call, g in zip(survey.layers, side.calls, side.gradients(outputs), strict=True):
                if layer.weight is not None:
                    norms = layer_diag(read_patches(call, len(g)), g, survey.byte_budget // 4)
                    diagonal.add(layer.weight.scale**2 * norms, chunk, outputs)
                if layer.bias is not None:
                    diagonal.add(layer.bias.scale**2 * (g.sum(4) ** 2).flatten(2).sum(2), chunk, outputs)


def row_plan(survey: Survey, n: int) -> tuple[int, int]:
    """Choose how many rows per side, and how many outputs at a time, the byte budget allows, for n rows on both sides."""
    # Taking all rows with few outputs at a time costs no more than taking all outputs at once, but a second tile of rows
    # repeats the work of the first side. So outputs are split first, unless every pair of outputs is wanted.
    size = survey.like.element_size()
    fixed = survey.row_bytes + 2 * size * max(layer.patch_entries for layer in survey.layers)
    each = 2 * size * sum(layer.gradient_entries for layer in survey.layers)  # as they arrive, and stacked
    outputs, budget = survey.outputs, survey.byte_budget * 3 // 4  # the last quarter is for the products of a layer
    if n * (fixed + outputs * each) <= budget:
        return n, outputs
    if n * (fixed + each) <= budget and not survey.network.full:
        passes = ceil(outputs / ((budget // n - fixed) // each))
        return n, ceil(outputs / passes)
    rows = budget // (2 * (fixed + outputs * each))
    return (rows, outputs) if rows else (1, min(outputs, max(1, (budget // 2 - fixed) // each)))
