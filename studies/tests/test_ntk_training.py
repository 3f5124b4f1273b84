from __future__ import annotations

import pytest

from ntkit.errors import InputError
from ntkit_studies import ntk_training
from ntkit_studies._by_width import by_width


def test_wide_centred_networks_are_nearer_to_the_kernel():
    settings = ntk_training.Settings(widths=(32, 512), kappas=(1.0,), draws=2, train=6, test=20, tolerance=1e-4)
    results = ntk_training.run(settings, seed=0)
    gaps = by_width(results.values, settings.widths, settings.draws, lambda found: found.gap)
    centred, scale = gaps["kappa 1, centred"].mean(axis=1), next(iter(results.values.values())).scale
    assert centred[1] < 0.6 * centred[0] and centred[1] < 0.25 * scale
    # Without centring the outputs at the start stay in the predictions, whatever the width.
    assert gaps["kappa 1"][1].mean() > 2 * centred[1]


def test_a_seed_gives_the_same_numbers():
    first, again = (ntk_training.run(ntk_training.QUICK, seed=1).values for _ in range(2))
    assert first == again and len(first) == 12


def test_untrained_networks_are_said():
    settings = ntk_training.Settings(widths=(16,), kappas=(1.0,), draws=1, train=6, test=4, max_steps=1)
    with pytest.raises(InputError, match="not trained to the end"):
        ntk_training.run(settings)


def test_program(tmp_path, capsys):
    assert ntk_training.main(["--quick", "--output", str(tmp_path)]) == 0
    assert "data:image/png" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "kappa 0.5" in capsys.readouterr().out
