from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit_studies import spawn_phases


def test_a_small_study():
    settings = spawn_phases.Settings(spawn=(0, 2), epochs=2, draws=2, train=100, width=8, probe=10)
    results = spawn_phases.run(settings)
    for found in results.values.values():
        assert len(found.barrier) == 2 and len(found.velocity) == 2
        assert found.kernel_distance[1] == 0 and found.kernel_distance[0] > 0
    report = spawn_phases.report(results)
    assert report.sections[0].parts[0].rows[0][0] == "test error barrier"


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        ([[1.0, 1.1], [0.1, 0.2]], "falls below a quarter of its value at T = 0 from T = 4 on"),
        ([[1.0, 1.1], [0.9, 0.8]], "does not fall to a quarter"),
        ([[0.0, 1.0], [0.0, 0.0]], "no phases can be told"),
    ],
)
def test_verdicts_follow_from_the_numbers(curve, said):
    texts = spawn_phases.verdicts([0, 4], {"barrier": np.array(curve)}, np.array([[1.0], [0.1]]))
    assert said in texts[0]
    assert texts[1] == "The kernel velocity is below a quarter of that of the first epoch from epoch 2 on."
    flat = spawn_phases.verdicts([0, 4], {}, np.array([[1.0], [0.9]]))
    assert "does not fall" in flat[0]


def test_children_part_before_the_end():
    with pytest.raises(InputError, match="after the last epoch"):
        spawn_phases.Settings(spawn=(5,), epochs=4)
