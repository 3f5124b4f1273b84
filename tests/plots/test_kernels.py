from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.plots import (
    CurveStyle,
    new_figure,
    plot_eigenvalue_decay,
    plot_heat_map,
    plot_levels,
    plot_shares,
    plot_spectrum,
)


@pytest.fixture
def ax():
    return new_figure().subplots()


@pytest.fixture
def gram():
    features = np.random.default_rng(0).normal(size=(6, 9))
    return features @ features.T


def test_heat_map_is_sorted_by_class_and_normalised(ax, gram):
    labels = np.array([1, 0, 1, 0, 1, 0])
    assert plot_heat_map(ax, gram, labels, title="K") is ax
    order = [1, 3, 5, 0, 2, 4]
    scale = np.sqrt(np.diagonal(gram))
    np.testing.assert_allclose(ax.images[0].get_array(), (gram / np.outer(scale, scale))[np.ix_(order, order)])
    assert list(ax.get_xticks()) == [1, 4]
    assert ax.get_title() == "K"


def test_heat_map_as_it_is(ax, gram):
    plot_heat_map(ax, gram, np.arange(6), normalize=False)
    np.testing.assert_array_equal(ax.images[0].get_array(), gram)


def test_spectrum_is_a_falling_share(ax, gram):
    plot_spectrum(ax, {"K": gram, "seven times K": 7 * gram}, {"K": CurveStyle("#0072B2", "--")})
    first, second = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose(first, second)
    assert np.all(np.diff(first) <= 0)
    assert first.sum() == pytest.approx(1)
    assert ax.lines[0].get_color() == "#0072B2"


def test_spectrum_leaves_out_what_rounding_makes_negative(ax):
    plot_spectrum(ax, {"K": np.diag([1.0, 0.5, -1e-17])})
    assert len(ax.lines[0].get_ydata()) == 2


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax: plot_heat_map(ax, np.ones((2, 3)), [0, 1]), r"\(n, n\). Got \(2, 3\)"),
        (lambda ax: plot_heat_map(ax, np.ones((2, 2)), [0, 1, 2]), r"labels must have shape \(2,\). Got \(3,\)"),
        (lambda ax: plot_spectrum(ax, {"K": np.ones(3)}), r"Got \(3,\)"),
    ],
)
def test_wrong_shapes(ax, draw, message):
    with pytest.raises(InputError, match=message):
        draw(ax)


def test_known_shares_are_drawn_as_they_are(ax, gram):
    values = np.linalg.eigvalsh(gram)[::-1]
    plot_spectrum(ax, {"K": gram})
    plot_shares(ax, {"K": values / values.sum(), "K2": [0.9, 0.1, 0.0]})
    np.testing.assert_allclose(ax.lines[1].get_ydata(), ax.lines[0].get_ydata())
    assert ax.lines[2].get_ydata().tolist() == [0.9, 0.1]


@pytest.mark.parametrize(("shares", "levels"), [([0.5, 0.1, 0.3, 0.1], 4), ([0.2, 0.7, 0.1], 3)])
def test_levels_are_stacked_to_a_hundred(ax, shares, levels):
    assert plot_levels(ax, {"K_HR": shares, "K_NTH": shares[::-1]}) is ax
    widths = np.array([patch.get_width() for patch in ax.patches]).reshape(levels, 2)
    np.testing.assert_allclose(widths[:, 0], 100 * np.array(shares))
    starts = np.array([patch.get_x() for patch in ax.patches]).reshape(levels, 2)
    np.testing.assert_allclose(starts[:, 0], 100 * np.concatenate([[0], np.cumsum(shares)[:-1]]), atol=1e-12)
    assert len(ax.get_legend().get_texts()) == levels


def test_eigenvalues_that_vanish_are_left_out(ax):
    plot_eigenvalue_decay(ax, [0, 1, 2, 3], {"a": [4.0, 2.0, 0.0, 1.0]})
    np.testing.assert_allclose(ax.lines[0].get_xdata(), [1, 3])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [2, 1])


@pytest.mark.parametrize(
    "act",
    [
        lambda ax: plot_eigenvalue_decay(ax, [0, 1], {"a": [1.0]}),
        lambda ax: plot_levels(ax, {"a": [1.0, 0.0]}),
        lambda ax: plot_levels(ax, {"a": [1.0, 0.0, 0.0], "b": [1.0, 0.0, 0.0, 0.0]}),
        lambda ax: plot_levels(ax, {}),
    ],
)
def test_wrong_shapes_of_spectra_and_levels(ax, act):
    with pytest.raises(InputError):
        act(ax)
