from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.plots import new_figure
from ntkit_studies.plots import plot_proxy


def test_proxies_leave_infinite_values_out():
    ax = plot_proxy(
        new_figure().subplots(), [1.0, np.inf, 3.0], [0.1, 0.2, 0.3], ["x", "x", "y"], "p", logarithmic=True
    )
    assert [len(line.get_xdata()) for line in ax.lines] == [1, 1] and ax.get_xscale() == "log"
    with pytest.raises(InputError, match="the same length"):
        plot_proxy(ax, [1.0], [0.1, 0.2], ["x"], "p")
