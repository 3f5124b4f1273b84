from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.plots import new_figure
from ntkit_studies.plots import fit_power_law, plot_random_features, plot_width_errors


@pytest.fixture
def ax():
    return new_figure().subplots()


def test_power_law_of_noisy_values_lies_within_its_error():
    x = np.geomspace(8, 4096, 10)
    y = 3 * x**-0.5 * np.exp(0.05 * np.random.default_rng(0).normal(size=10))
    law = fit_power_law(list(x), y)
    assert abs(law.exponent + 0.5) < 3 * law.error < 0.1
    assert np.isnan(fit_power_law([1, 2], [3.0, 2.0]).error)
    assert fit_power_law([1, 4], [[3.0, 4.0], [3.0, 4.0]]).factor == pytest.approx(12.5**0.5)


def test_width_errors(ax):
    assert plot_width_errors(ax, [1, 4], {"a": [[2.0, 2.0], [1.0, 1.0]]}, "error") is ax
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 1])
    assert (
        plot_width_errors(ax, [1, 4], {"a": [[2.0], [1.0]]}, "error", fit=False).get_legend().get_texts()[-1].get_text()
        == "a"
    )


def test_random_features(ax):
    assert plot_random_features(ax, [8, 16], {"a": [[0.5, 0.7, 0.6], [0.7, 0.8, 0.9]]}, {"a": 0.95}) is ax
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [60, 80])


@pytest.mark.parametrize(
    "act",
    [
        lambda ax: fit_power_law([1, 1], [1.0, 2.0]),
        lambda ax: fit_power_law([1, 2], [1.0, -2.0]),
        lambda ax: fit_power_law([1, 2], [1.0]),
        lambda ax: plot_width_errors(ax, [1, 2], {"a": [1.0, 2.0]}, "e"),
        lambda ax: plot_random_features(ax, [1, 2], {"a": [[1.0]]}, {"a": 1.0}),
    ],
)
def test_wrong_shapes(ax, act):
    with pytest.raises(InputError):
        act(ax)
