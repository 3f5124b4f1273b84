from __future__ import annotations

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit_studies import kernel_evolution
from ntkit_studies._by_width import by_width
from ntkit_studies.plots import fit_power_law


def test_kernels_stand_still_in_one_parametrisation_and_move_in_the_other():
    settings = kernel_evolution.Settings(widths=(64, 512), draws=2, points=40, probes=20)
    results = kernel_evolution.run(settings, seed=1)
    movement = by_width(results.values, settings.widths, settings.draws, lambda found: found.movement)
    slopes = {name: fit_power_law(settings.widths, values).exponent for name, values in movement.items()}
    assert slopes["NTK, tanh"] == pytest.approx(-1, abs=0.25)
    assert slopes["NTK, ReLU"] < -0.4
    for activation in ("tanh", "ReLU"):
        wide = {name: movement[f"{name}, {activation}"][-1].min() for name in ("NTK", "standard")}
        assert wide["standard"] > 3 * wide["NTK"]
    for cell, found in results.values.items():
        assert (found.limit_error is None) == cell.curve.startswith("NTK")
        assert 0 < found.distance < 1 and 0.5 <= found.accuracy <= 1 and 0 < found.switched < 0.5
    narrow, wide = (
        [f.limit_error for c, f in results.values.items() if c.curve == "standard, tanh" and c.width == width]
        for width in settings.widths
    )
    assert max(wide) < min(narrow)
    assert [one.paper for one in kernel_evolution.report(results).comparisons] == [-1.0, -1.0, None, None]


def test_the_spread_of_a_slope_is_that_over_networks():
    widths, random = (64, 256, 1024), np.random.default_rng(0)
    drawn = np.array(widths)[:, None] ** -1.0 * random.lognormal(0, 0.3, (3, 16))
    again = [
        fit_power_law(widths, np.array(widths)[:, None] ** -1.0 * random.lognormal(0, 0.3, (3, 16))).exponent
        for _ in range(300)
    ]
    assert kernel_evolution._spread_of_slope(widths, drawn) == pytest.approx(np.std(again), rel=0.5)
    assert kernel_evolution._spread_of_slope(widths, drawn[:, :1]) == pytest.approx(0, abs=1e-12)


def test_slopes_need_widths():
    with pytest.raises(InputError, match="two different"):
        kernel_evolution.Settings(widths=(8, 8))
