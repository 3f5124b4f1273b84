from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit.errors import InputError
from ntkit.plots import new_figure
from ntkit_studies.plots import plot_accuracies, plot_elasticity, plot_relabelling


@pytest.fixture
def ax():
    return new_figure().subplots()


def test_elasticity(ax):
    times, ratios = torch.tensor([0.0, 1.0, 100.0]), {"a": torch.tensor([0.5, 0.6, 0.7]), "b": [0.5, 0.55, 0.6]}
    assert plot_elasticity(ax, times, ratios, xlabel="steps") is ax
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [50, 60, 70])
    assert ax.get_xscale() == "symlog" and ax.get_xlabel() == "steps"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    ax.figure.canvas.draw()


def test_elasticity_of_even_times_has_a_plain_axis(ax):
    assert plot_elasticity(ax, [0, 1, 2], {"a": [0.5, 0.6, 0.7]}).get_xscale() == "linear"


def test_relabelling(ax):
    points = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 2.0]])
    assert plot_relabelling(ax, points, torch.tensor([-1.0, 1.0, 1.0])) is ax
    np.testing.assert_allclose(ax.collections[0].get_offsets(), points[1:])
    np.testing.assert_allclose(ax.collections[1].get_offsets(), points[:1])


def test_accuracies(ax):
    assert plot_accuracies(ax, ["a", "b"], [[0.9, 0.5], [0.8, 0.7]], ["old", "new"], [0.5, 0.52]) is ax
    np.testing.assert_allclose([patch.get_height() for patch in ax.patches], [90, 80, 50, 70])
    np.testing.assert_allclose([line.get_ydata()[0] for line in ax.lines], [50, 52])


@pytest.mark.parametrize(
    "act",
    [
        lambda ax: plot_elasticity(ax, [0, 1], {"a": [0.5]}),
        lambda ax: plot_elasticity(ax, [0, 1], {"a": [0.5, float("nan")]}),
        lambda ax: plot_elasticity(ax, [], {}),
        lambda ax: plot_relabelling(ax, [[1.0, 2.0]], [1.0, 2.0]),
        lambda ax: plot_relabelling(ax, [[1.0, 2.0, 3.0]], [1.0]),
        lambda ax: plot_accuracies(ax, ["a"], [[0.5]], ["x", "y"]),
        lambda ax: plot_accuracies(ax, ["a"], [[0.5]], ["x"], [0.5, 0.5]),
    ],
)
def test_wrong_shapes(ax, act):
    with pytest.raises(InputError):
        act(ax)
