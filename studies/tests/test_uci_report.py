from __future__ import annotations

import pytest

from ntkit_studies._uci_methods import Grids, Outcome
from ntkit_studies._uci_report import accuracies, scores_of, sections
from ntkit_studies.plots import Picture, Table

OUTCOMES = {
    "NTK SVM": {"a": Outcome({"C": 1.0}, 0.9, (0.8, 1.0), 20, 3), "b": Outcome({"C": 10.0}, 0.5, (0.5, 0.5), 30, 4)},
    "RBF SVM": {"a": Outcome({"C": 2.0}, 0.9, (0.6, 0.6), 20, 3), "b": Outcome({"C": 1.0}, 0.5, (1.0, 1.0), 30, 4)},
}


def test_accuracies_are_means_over_folds():
    assert accuracies(OUTCOMES)["NTK SVM"] == {"a": pytest.approx(0.9), "b": 0.5}
    assert scores_of(OUTCOMES)["RBF SVM"].accuracy == pytest.approx(0.8)


def test_tables():
    comparison, every, how = sections(OUTCOMES, {"NTK SVM": 1.4, "RBF SVM": 2.6}, Grids(), 7)
    methods, scatter = comparison.parts
    assert isinstance(methods, Table) and isinstance(scatter, Picture)
    assert methods.rows[0] == ["NTK SVM", "70.00 ± 20.00", "1.50", "50.00", "50.00", "75.00", "1"]
    accuracy, choice = every.parts
    assert accuracy.rows[1] == ["b", "30", "4", "50.0", "100.0"]
    assert choice.rows[0] == ["a", "C 1", "C 2"]
    assert "seed 7" in how.parts[0]


def test_one_method_has_nothing_to_be_compared_with():
    comparison, *_ = sections({"NTK SVM": OUTCOMES["NTK SVM"]}, {"NTK SVM": 1.0}, Grids(), 0)
    assert len(comparison.parts) == 1
