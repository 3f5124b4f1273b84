"""Self-attention: K' = A(x) K_v A(x')^T with logits that are constants of each input, and the identity at 1/sqrt(d)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

import torch

from ntkit._src.program import Attention, Node

from .. import _core
from .._plane import ALL, Plane
from ._whole import WholeFamily, map_both_sides, tokens

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


class AttentionFamily(WholeFamily[Attention]):
    """Attention. At 1/d its weights A(x) are cached; those of vanishing logits are the same for all inputs."""

    def missing(self, network: PlannedNetwork, index: int, op: Attention) -> str | None:
        if op.scaling == "linear":
            supported = not op.tied or op.phi is None or op.phi.slopes() is not None
        else:
            supported = op.linear_in_logits
        return None if supported else op.label()

    def homogeneous(self, op: Attention) -> bool:
        return False

    def inputs(self, node: Node) -> tuple[int, ...]:
        assert isinstance(node.op, Attention)
        return node.inputs[2:] if node.op.scaling == "linear" else node.inputs

    def cache_entries(self, network: PlannedNetwork, index: int, op: Attention) -> Iterator[tuple[_core.Cached, int]]:
        yield from super().cache_entries(network, index, op)
        if op.scaling == "linear" and op.tied:
            queries = network.program.nodes[index].inputs[0]
            if not network.linear_after[queries]:
                yield _core.Cached.HALF, queries
            yield _core.Cached.WEIGHTS, index

    def stored_from(self, network: PlannedNetwork, index: int, what: _core.Cached) -> Plane:
        plane = super().stored_from(network, index, what)
        if what != _core.Cached.WEIGHTS:
            return plane
        return plane._replace(node=network.program.nodes[index].inputs[0], step=ALL)

    def store(
        self, network: PlannedNetwork, index: int, op: Attention, what: _core.Cached, target: int
    ) -> _core.Store | _core.Weights:
        if what != _core.Cached.WEIGHTS:
            return super().store(network, index, op, what, target)
        low, high = (0.0, 1.0) if op.phi is None else op.phi.slopes() or (0.0, 1.0)
        return _core.Weights(
            tokens=prod(network.program.nodes[index].positions),
            factor=op.gain,
            softmax=op.phi is None,
            low=low,
            high=high,
            mask=[] if op.mask is None else op.mask.to(torch.float64).flatten().tolist(),
            target_at=target,
        )

    def emit_whole(self, emitter: Emitter, plane: Plane, op: Attention) -> None:
        network, index = emitter.network, plane.node
        count = tokens(emitter, index)
        reads = [emitter.demand.whole(read) for read in self.inputs(network.program.nodes[index])]
        for read in reads:
            emitter.compute(read)
        if op.scaling == "linear":

            def matrix() -> _core.Matrix:
                if op.tied:
                    return _core.Matrix(
                        rows=count, columns=count, cached_at=network.cache_at(_core.Cached.WEIGHTS, index)
                    )
                numbers = op.weights(torch.zeros(count, count, dtype=torch.float64))
                return _core.Matrix(rows=count, columns=count, numbers=numbers.flatten().tolist())

            map_both_sides(emitter, emitter.operation("matrix", index, matrix), reads[0], plane, count, count)
        else:
            _emit_identity(emitter, plane, op, reads)
        for read in reads:
            emitter.release(read)


def _emit_identity(emitter: Emitter, plane: Plane, op: Attention, reads: list[Plane]) -> None:
    """K' = K_q g^2 sum_bb' K_k K_v, the sums over the keys that a and a' see, and Theta' by the rule of products."""
    whole, plane = plane, plane._replace(step="made")
    index, count = plane.node, tokens(emitter, plane.node)
    queries, keys, values = reads
    size = [1, count, count]
    plain = emitter.operation("every", index, lambda: _core.Plain(size=size))
    fill = emitter.operation("zero", index, lambda: _core.Fill(size=size))
    times = emitter.operation("times", index, lambda: _core.Product(size=size))
    product = plane._replace(step="product")
    emitter.take_slot(product, count * count)
    emitter.emit(_core.Kind.FILL, fill, product, ())
    emitter.emit(_core.Kind.COMBINE, plain, product, (), keys, ())
    emitter.emit(_core.Kind.MULTIPLY, times, product, (), values, ())
    hidden = op.hidden()
    if hidden is None:
        total = plane._replace(step="total")
        ones = [1.0] * count
        first = emitter.operation("sum", index, lambda: _core.Matrix(rows=1, columns=count, numbers=[op.gain] * count))
        then = emitter.operation("repeat", index, lambda: _core.Matrix(rows=count, columns=1, numbers=ones))
        map_both_sides(emitter, first, product, total, 1, count)
        map_both_sides(emitter, then, total, plane, count, 1)
        emitter.leave_slot(total)
    else:
        numbers = (op.gain * (~hidden).to(torch.float64)).flatten().tolist()
        seen = emitter.operation("sum", index, lambda: _core.Matrix(rows=count, columns=count, numbers=numbers))
        map_both_sides(emitter, seen, product, plane, count, count)
    emitter.leave_slot(product)
    emitter.emit(_core.Kind.MULTIPLY, times, plane, (), queries, ())
    emitter.rename(plane, whole)
