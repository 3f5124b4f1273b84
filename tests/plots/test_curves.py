from __future__ import annotations

import sys

import numpy as np
import pytest

from ntkit.errors import InputError, MissingDependencyError
from ntkit.plots import new_figure, plot_accuracy


@pytest.fixture
def ax():
    return new_figure().subplots()


def test_accuracy_shows_means_and_standard_deviations(ax):
    plot_accuracy(ax, [20, 40], {"NTK": [[0.6, 0.8], [0.9, 1.0]]})
    bars = ax.containers[0]
    np.testing.assert_allclose(bars.lines[0].get_ydata(), [70, 95])
    deviation = np.std([60, 80], ddof=1)
    np.testing.assert_allclose(bars.lines[2][0].get_segments()[0][:, 1], [70 - deviation, 70 + deviation])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["20", "40"]


def test_one_draw_has_no_bars(ax):
    plot_accuracy(ax, [20, 40], {"NTK": [[0.6], [0.9]]})
    assert not ax.containers[0].has_yerr


def test_wrong_shapes(ax):
    with pytest.raises(InputError, match=r"'NTK' must have shape \(1, draws\). Got \(1,\)"):
        plot_accuracy(ax, [20], {"NTK": [0.5]})


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ntkit\[plot\]'"):
        new_figure()
