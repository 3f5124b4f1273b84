from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.plots import new_figure
from ntkit_studies.plots import plot_spread


@pytest.fixture
def ax():
    return new_figure().subplots()


def test_spread_is_the_mean_and_the_extremes(ax):
    plot_spread(ax, [0, 1], {"a": [[1.0, 3.0], [0.0, 1.0]], "b": [[1.0], [2.0]]}, "epoch", "error")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 0.5])
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].min() == 0 and corners[:, 1].max() == 3
    assert ax.get_xlabel() == "epoch" and ax.get_ylabel() == "error"


@pytest.mark.parametrize(
    "act",
    [
        lambda ax: plot_spread(ax, [0, 1], {"a": [1.0, 2.0]}, "x", "y"),
        lambda ax: plot_spread(ax, [0, 1], {"a": [[1.0]]}, "x", "y"),
    ],
)
def test_shapes_that_do_not_fit(ax, act):
    with pytest.raises(InputError, match="'a' must have"):
        act(ax)
