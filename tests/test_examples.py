"""The examples of the gallery run, and what they say is so."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"
FILES = sorted(FOLDER.glob("plot_*.py"))
pytestmark = pytest.mark.skipif(not FILES, reason="examples belong to the repository, not to the wheel")
CONCLUSIONS = {
    "plot_01_first_kernel": lambda it: it["kernel"].diagonal().std() < 1e-12,
    "plot_02_finite_width": lambda it: 4 < it["errors"][0] / it["errors"][-1] < 16,  # 8 for widths 64 times as large
    "plot_03_classifier": lambda it: it["accuracy"] > 0.97,
    "plot_04_regressor": lambda it: it["std"][0] > 1.5 * it["std"][100],
    "plot_05_table": lambda it: (it["again"].predict(it["frame"]) == it["model"].predict(it["frame"])).all(),
    "plot_07_gradient_flow": lambda it: (it["flow"].predict(it["x"]) - it["y"]).abs().max() < 1e-6,
    "plot_09_leave_one_out": lambda it: it["found"].errors.min() < 0.2,
    "plot_10_label_aware": lambda it: (
        it["elasticity"]["kr-v1"] < it["elasticity"]["none"] < it["elasticity"]["kr-v2"] < it["elasticity"]["fjlt-v1"]
    ),
    "plot_11_convolutions": lambda it: it["model"].score(it["X"][150:300], it["y"][150:300]) > 0.95,
    "plot_12_gains": lambda it: it["found"].log_marginal_likelihood > it["default"] + 10,
    "plot_14_attribution": lambda it: ((it["scores"][0] > 0) == (it["y"][it["rows"][0]] == 1)).all(),
    "plot_15_features": lambda it: it["cosines"][0] < 0.6 < 0.98 < it["cosines"][-1],
    "plot_16_rfm": lambda it: it["model"].metric_.diagonal()[:2].min() > 10 * it["model"].metric_.diagonal()[2:].max(),
    "plot_17_monte_carlo": lambda it: it["error"].max() < 0.1 * it["mean"].max(),
}
"""What an example shows, as a function of its variables."""


def test_there_are_enough():
    assert len(FILES) >= 16
    assert set(CONCLUSIONS) <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example(path, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    try:
        found = runpy.run_path(str(path))
        figures = [pyplot.figure(number) for number in pyplot.get_fignums()]
        assert capsys.readouterr().out or figures, "it shows nothing"
        assert all(axes.get_title() or axes.get_label() == "<colorbar>" for one in figures for axes in one.axes), (
            "the title is the alt text of the figure"
        )
    finally:
        pyplot.close("all")
    assert CONCLUSIONS.get(path.stem, bool)(found)
