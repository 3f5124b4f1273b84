from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.plots import new_figure, plot_proxy, plot_rounds


def test_rounds():
    ax = plot_rounds(new_figure().subplots(), {"a": [[0.1, 0.5], [0.3, 0.7]], "b": [[0.2, 0.2, 0.2]]})
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [20, 60])
    assert len(ax.lines) == 2
    with pytest.raises(InputError, match="shape"):
        plot_rounds(ax, {"a": [0.1, 0.2]})


def test_proxies_leave_infinite_values_out():
    ax = plot_proxy(
        new_figure().subplots(), [1.0, np.inf, 3.0], [0.1, 0.2, 0.3], ["x", "x", "y"], "p", logarithmic=True
    )
    assert [len(line.get_xdata()) for line in ax.lines] == [1, 1] and ax.get_xscale() == "log"
    with pytest.raises(InputError, match="the same length"):
        plot_proxy(ax, [1.0], [0.1, 0.2], ["x"], "p")
