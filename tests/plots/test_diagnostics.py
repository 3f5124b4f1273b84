from __future__ import annotations

import numpy as np
import pytest

from ntkit._src.plots import new_figure, plot_eigenvalue_decay, plot_spread
from ntkit.errors import InputError


@pytest.fixture
def ax():
    return new_figure().subplots()


def test_eigenvalues_that_vanish_are_left_out(ax):
    plot_eigenvalue_decay(ax, [0, 1, 2, 3], {"a": [4.0, 2.0, 0.0, 1.0]})
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [1, 3])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 1])


def test_spread_is_the_mean_and_the_extremes(ax):
    plot_spread(ax, [0, 1], {"a": [[1.0, 3.0], [0.0, 1.0]], "b": [[1.0], [2.0]]}, "epoch", "error")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 0.5])
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == 0 and corners[:, 1].max() == 3
    assert ax.get_xlabel() == "epoch" and ax.get_ylabel() == "error"


@pytest.mark.parametrize(
    "act",
    [
        lambda ax: plot_eigenvalue_decay(ax, [0, 1], {"a": [1.0]}),
        lambda ax: plot_spread(ax, [0, 1], {"a": [1.0, 2.0]}, "x", "y"),
        lambda ax: plot_spread(ax, [0, 1], {"a": [[1.0]]}, "x", "y"),
    ],
)
def test_shapes_that_do_not_fit(ax, act):
    with pytest.raises(InputError, match="'a' must have"):
        act(ax)
