"""Which tapes there are: between two inputs, and of each input on its own."""

from __future__ import annotations

from math import prod

from ntkit.program import AvgPool

from ._layout import Layout, Own
from ._planes import Plane
from ._tape import PLANE_BYTES, Planner, TapePlan

__all__ = ["KEPT_BYTES", "plan_cross", "plan_self"]

KEPT_BYTES = 48 << 20  # of the planes that a thread keeps, as long as computing some of them again is of any use


def plan_cross(layout: Layout, ntk: bool) -> TapePlan:
    """Plan the kernels between two inputs of which what is remembered is known.

    Neighbouring offsets of a pool share planes. These are kept: to compute one again takes at least one layer, and longer than to
    fetch it, be it from memory (``benchmarks/planes.py`` measures both). Where all that is kept is more than ``KEPT_BYTES``, as
    of large images, the pools that keep most go without; but not where windows overlap, since each plane has many readers there.
    """
    plan = _plan_cross(layout, ntk, frozenset())
    over = plan.kept_bytes - KEPT_BYTES
    if over <= 0:
        return plan
    again: set[int] = set()
    for kept, pool in sorted(((_kept_bytes(layout, pool), pool) for pool in _pools(layout)), reverse=True):
        if over > 0:
            again.add(pool)
            over -= kept
    return min(plan, _plan_cross(layout, ntk, frozenset(again)), key=lambda plan: plan.kept_bytes)


def _pools(layout: Layout) -> list[int]:
    """Give the pools whose neighbouring offsets read the same planes, each of them less than twice."""
    return [
        index
        for index, node in enumerate(layout.program.nodes)
        if isinstance(op := node.op, AvgPool) and op.size > 1 and op.stride >= op.kernel
    ]


def _kept_bytes(layout: Layout, pool: int) -> int:
    """How much a pool keeps from one offset along its axis to the next: the planes of all offsets along the axes before it."""
    nodes = layout.program.nodes
    op, positions = nodes[pool].op, nodes[nodes[pool].inputs[0]].positions
    assert isinstance(op, AvgPool)
    return (
        max(2 * op.kernel - 1 - op.stride, 0)
        * prod(2 * size - 1 for size in positions[: op.axis])
        * prod(positions)
        * PLANE_BYTES
    )


def _plan_cross(layout: Layout, ntk: bool, again: frozenset[int]) -> TapePlan:
    planner = Planner(layout, ntk, alone=False, again=again)
    output = Plane(layout.program.output, (), True)
    planner.count([output])
    planner.finish(output)
    return planner.plan()


def plan_self(layout: Layout, ntk: bool, output: bool) -> TapePlan:
    """Plan what is remembered of each input on its own, and, where ``output``, its kernels with itself."""
    planner = Planner(layout, ntk and output, alone=True)
    nodes = layout.program.nodes
    stores = []
    for kind, index in layout.own:
        source = nodes[index].inputs[-1] if kind in (Own.DEVIATION, Own.SCALE) else index
        stores.append((source, kind, index))
    stores.sort()  # what is remembered of a node is there before anything that follows the node needs it
    final = Plane(layout.program.output, (), True)
    planner.count([planner.planes.own_plane(source) for source, _, _ in stores] + ([final] if output else []))
    for source, kind, index in stores:
        plane = planner.planes.own_plane(source)
        planner.compute(plane)
        if kind not in (Own.INSIDE, Own.MEAN):  # those are stored on the way
            planner.store(kind, index, plane)
        planner.release(plane)
    if output:
        planner.finish(final)
    return planner.plan()
