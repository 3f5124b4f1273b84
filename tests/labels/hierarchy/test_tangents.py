"""Derivatives of gradients along vector fields, with and without vmap."""

from __future__ import annotations

from tests.labels.hierarchy.module_cases import case, close

from ntkit._src.labels.hierarchy._module_hierarchy import scalar_network
from ntkit._src.labels.hierarchy._tangents import Tangents


def test_without_vmap():
    """Where vmap fails or disagrees, rows are taken one by one."""
    net, _, x1, x2, x, vectors = case("mlp")
    network = scalar_network(net, None, x1)
    slow = Tangents(network, x)
    slow._batched = False
    close(slow.gram(x1, x2, [vectors[:2]]), Tangents(network, x).gram(x1, x2, [vectors[:2]]))
    wrong = Tangents(network, x)
    wrong._agrees = lambda *_: False
    close(wrong.gram(x1, x2, [vectors[:2]]), slow.gram(x1, x2, [vectors[:2]]))
    assert not wrong._batched
