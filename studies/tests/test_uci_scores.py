from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from ntkit.errors import InputError
from ntkit_studies._uci_scores import scores


def test_scores_against_their_definitions():
    generator = np.random.default_rng(0)
    values = generator.integers(0, 11, (4, 30)) / 10
    values[:, 0] = 0  # where nobody gets anything right everybody reaches the best
    found = scores({str(row): list(values[row]) for row in range(4)})
    for row in range(4):
        score, ratios = found[str(row)], []
        for column in range(30):
            best = max(values[:, column])
            ratios.append(values[row, column] / best if best else 1.0)
        assert score.accuracy == pytest.approx(values[row].mean())
        assert score.deviation == pytest.approx(values[row].std())
        assert score.rank == pytest.approx(np.mean([rankdata(-values[:, c])[row] for c in range(30)]))
        assert score.p90 == pytest.approx(np.mean([round(ratio, 9) >= 0.90 for ratio in ratios]))
        assert score.p95 == pytest.approx(np.mean([round(ratio, 9) >= 0.95 for ratio in ratios]))
        assert score.pma == pytest.approx(np.mean(ratios))
    assert sum(score.rank for score in found.values()) == pytest.approx(10)


@pytest.mark.parametrize("accuracy", [{}, {"a": []}, {"a": [1.0], "b": [1.0, 0.0]}, {"a": [np.nan]}, {"a": [81.9]}])
def test_scores_of_what_are_no_accuracies(accuracy):
    with pytest.raises(InputError, match=r"accurac"):
        scores(accuracy)
