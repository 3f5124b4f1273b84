"""The tapes of a program: between two inputs, and of each input alone."""

from __future__ import annotations

from collections.abc import Mapping

from . import _core
from ._emitter import POSITION_BYTES, Emitter, TapePlan
from ._network import PlannedNetwork
from ._plane import Plane
from .families import kept_positions, known_family, shared_pools

KEPT_BYTES = 48 << 20  # limit for the planes that a thread keeps, as long as recomputing some of them helps


def tape_between(network: PlannedNetwork, ntk: bool) -> TapePlan:
    """Plan the kernels between two inputs whose cached data are known."""
    # Neighbouring offsets of a pool share planes. These are kept: recomputing one takes at least one layer, which is slower
    # than fetching it even from main memory (``benchmarks/planes.py`` measures both). If they take more than ``KEPT_BYTES``, as
    # for large images, the pools that would keep the most recompute theirs; but not where windows overlap, because each plane
    # then has many readers.
    plan = tape_computing_again(network, ntk, {})
    over = plan.kept_bytes - KEPT_BYTES
    if over <= 0:
        return plan
    pools = shared_pools(network)
    again: dict[int, int] = {}
    kept = ((kept_positions(network, pool) * POSITION_BYTES, pool) for pool in pools)
    for size, pool in sorted(kept, reverse=True):
        if over > 0:
            again[pool] = pools[pool]
            over -= size
    return min(plan, tape_computing_again(network, ntk, again), key=lambda plan: plan.kept_bytes)


def tape_computing_again(network: PlannedNetwork, ntk: bool, again: Mapping[int, int]) -> TapePlan:
    """Plan the kernels between two inputs; the given pools, with their axes, do not keep the planes they share."""
    emitter = Emitter(network, ntk, alone=False, again=again)
    output = Plane(network.program.output, (), True)
    emitter.count([output])
    emitter.finish(output)
    return emitter.plan()


def tape_alone(network: PlannedNetwork, ntk: bool, output: bool) -> TapePlan:
    """Plan the cached data of each input and, if ``output``, its kernels with itself."""
    emitter = Emitter(network, ntk and output, alone=True)
    nodes = network.program.nodes
    stores = []
    for what, index in network.cache:
        plane = known_family(nodes[index].op).stored_from(network, index, what)
        stores.append((plane.node, what, index, plane))
    stores.sort()  # cached data of a node are stored before any later node needs them
    final = Plane(network.program.output, (), True)
    emitter.count([plane for *_, plane in stores] + ([final] if output else []))
    for _, what, index, plane in stores:
        emitter.compute(plane)
        if what not in (_core.Cached.INSIDE, _core.Cached.MEAN):  # computing the plane stores those
            emitter.store(what, index, plane)
        emitter.release(plane)
    if output:
        emitter.finish(final)
    return emitter.plan()
