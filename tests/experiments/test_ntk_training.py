from __future__ import annotations

import json

import numpy as np
import pytest

from ntkit.errors import InputError
from ntkit.experiments import ntk_training


def test_wide_centred_networks_are_nearer_to_the_kernel():
    settings = ntk_training.Settings(widths=(32, 512), kappas=(1.0,), draws=2, train=6, test=20, tolerance=1e-4)
    result = ntk_training.run(settings, seed=0)
    gaps = result.gaps["kappa 1, centred"].mean(axis=1)
    assert gaps[1] < 0.6 * gaps[0] and gaps[1] < 0.25 * result.scale
    # Without centring the outputs at the start stay in the predictions, whatever the width.
    assert result.gaps["kappa 1"][1].mean() > 2 * gaps[1]


def test_a_seed_gives_the_same_numbers_and_files_are_gone_on_from(tmp_path):
    path, reports = tmp_path / "a.json", []
    first = ntk_training.run(ntk_training.QUICK, seed=1, path=path)
    again = ntk_training.run(ntk_training.QUICK, seed=1, progress=lambda *report: reports.append(report))
    cells = json.loads(path.read_text())
    cells["cells"].popitem()
    path.write_text(json.dumps(cells))
    resumed = ntk_training.run(ntk_training.QUICK, seed=1, path=path)
    for name, gaps in first.gaps.items():
        np.testing.assert_array_equal(gaps, again.gaps[name])
        np.testing.assert_array_equal(gaps, resumed.gaps[name])
    assert reports[-1] == ("kappa 1, centred", 4, 4)


def test_untrained_networks_are_said():
    settings = ntk_training.Settings(widths=(16,), kappas=(1.0,), draws=1, train=6, test=4, max_steps=1)
    with pytest.raises(InputError, match="not trained to the end"):
        ntk_training.run(settings)


def test_program(tmp_path, capsys):
    path = tmp_path / "result.json"
    assert ntk_training.main(["--quick", "--output", str(path)]) == 0
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr().out
    assert "kappa 0.5" in output and "result.json" in output.replace("\n", "")
