"""Which tape is chosen: what neighbouring offsets of a pool share is kept, unless it takes too much memory."""

import pytest
from tests.native.networks import network
from torch import nn

from ntkit._src.native import _tapes
from ntkit._src.native._emitter import POSITION_BYTES
from ntkit._src.native._tapes import tape_between, tape_computing_again
from ntkit._src.native.families import kept_positions, shared_pools

NET = nn.Sequential(
    nn.Conv2d(1, 4, 3, padding=1),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.Conv2d(4, 4, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(4, 1),
)


def test_planes_are_kept_while_they_fit(monkeypatch):
    net = network(NET, 1, 8, 12)
    pools = shared_pools(net)
    kept = tape_computing_again(net, True, {})
    most = max(pools, key=lambda pool: kept_positions(net, pool))
    one, both = (tape_computing_again(net, True, again) for again in ({most: pools[most]}, pools))
    assert kept.planes < one.planes < both.planes
    assert kept.kept_bytes > one.kept_bytes > both.kept_bytes
    freed = kept_positions(net, most) * POSITION_BYTES
    for room, expected in (
        (kept.kept_bytes, kept),
        (kept.kept_bytes - 1, one),  # the pool that keeps most is enough
        (kept.kept_bytes - freed, one),
        (kept.kept_bytes - freed - 1, both),
        (0, both),
    ):
        monkeypatch.setattr(_tapes, "KEPT_BYTES", room)
        found = tape_between(net, True)
        assert (found.planes, found.kept_bytes) == (expected.planes, expected.kept_bytes)


def test_computing_again_is_not_chosen_where_it_frees_nothing(monkeypatch):
    monkeypatch.setattr(_tapes, "KEPT_BYTES", 0)
    overlapping = nn.Sequential(
        nn.Conv1d(1, 4, 1),
        nn.AvgPool1d(3, 2),
        nn.Conv1d(4, 4, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
    net = network(overlapping, 1, 9)
    assert tape_between(net, True).planes == tape_computing_again(net, True, {}).planes


@pytest.mark.parametrize("ntk", [False, True])
def test_the_cache_come_before_what_reads_them(ntk):
    """Cached data are numbered by node, and stored in the order of the nodes whose variances they are made of."""
    net = network(NET, 1, 4, 4)
    stored = [
        plan.tape.operations[step.operation].target_at
        for plan in [_tapes.tape_alone(net, ntk, output=True)]
        for step in plan.tape.instructions
        if step.kind.name == "STORE"
    ]
    assert len(stored) == len(set(stored)) == len(net.cache)
    assert set(stored) == set(net.cache.values())
