from __future__ import annotations

import pytest

from ntkit_studies import topology_optimisation


def test_shapes_are_stiffer_than_the_uniform_density():
    settings = topology_optimisation.Settings(nx=12, ny=4, steps=30, width=64, draws=1)
    results = topology_optimisation.run(settings)
    assert [cell.name for cell in results.values] == list(topology_optimisation.EMBEDDINGS)
    for cell, found in results.values.items():
        assert found.compliance < found.start and found.course[-1] == found.compliance
        assert sum(found.density) / 48 == pytest.approx(0.5, abs=0.01)
        if cell.name == "pixels":
            assert found.spread is None
        elif cell.name == "coordinates":
            assert found.spread > 0.1
        else:
            assert found.spread < 1e-9  # the kernel is the same everywhere
    assert len(topology_optimisation.report(results).sections[0].parts[0].rows) == 4
