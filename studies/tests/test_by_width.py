from __future__ import annotations

import numpy as np
import pytest

from ntkit_studies._by_width import WidthCell, by_width, mean_exponent, network_seed, width_cells
from ntkit_studies.plots import fit_power_law


def test_numbers_by_curve_width_and_draw():
    cells = width_cells(["a", "b"], [8, 16, 32], 2)
    values = {cell: cell.width + 0.1 * cell.draw + (cell.curve == "b") for cell in reversed(cells)}
    found = by_width(values, [8, 16, 32], 2, lambda one: 2 * one)
    assert found["a"].tolist() == [[16, 16.2], [32, 32.2], [64, 64.2]]
    assert found["b"][0, 0] == 18


def test_seeds_differ_by_width_and_draw_and_not_by_curve():
    cells = width_cells(["a", "b"], [8, 16], 3)
    seeds = {cell: network_seed(5, cell, [8, 16], 3) for cell in cells}
    assert len(set(seeds.values())) == 6
    assert seeds[WidthCell("a", 16, 1)] == seeds[WidthCell("b", 16, 1)] == 5 + 7919 * 4


def test_error_of_a_rate_is_its_spread_over_sets_of_networks():
    """Errors with a few large values, as those of kernels have: the residuals of a fit understate how much slopes scatter."""
    random, widths = np.random.default_rng(0), [32, 64, 128, 256, 512]
    sets = [np.sqrt(random.chisquare(1, (5, 10)) / np.array(widths)[:, None]) for _ in range(400)]
    found = np.array([mean_exponent(widths, values) for values in sets])
    assert found[:, 0].mean() == pytest.approx(-0.5, abs=0.03)
    # The standard error is right on average: the means scatter by it.
    assert np.sqrt((found[:, 1] ** 2).mean()) == pytest.approx(found[:, 0].std(), rel=0.15)
    residual = [fit_power_law(widths, values) for values in sets]
    assert np.median([law.error for law in residual]) < 0.9 * np.std([law.exponent for law in residual])
    assert mean_exponent(widths, sets[0][:, :1])[1] is None
