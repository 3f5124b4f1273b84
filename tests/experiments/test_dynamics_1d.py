from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from ntkit.experiments import dynamics_1d


@pytest.fixture(scope="module")
def result():
    return dynamics_1d.run(dynamics_1d.QUICK, seed=1)


def test_shapes_and_what_the_kernels_say(result):
    settings = result.settings
    assert result.outputs.shape == (3, settings.members, settings.grid)
    assert result.mean.shape == result.std.shape == (3, settings.grid)
    assert not result.mean[0].any()
    assert (result.kernel_loss.diff() < 0).all()
    expected = torch.exp(-result.loss_times[:, None] * result.eigenvalues)
    torch.testing.assert_close(result.kernel_left, expected, rtol=1e-6, atol=1e-9)


def test_networks_follow_the_kernels(result):
    """Eight networks of width 64: within what so few can tell."""
    std = result.std
    deviation = (result.outputs.mean(1) - result.mean) / std * result.settings.members**0.5
    assert float(deviation.square().mean()) < 3
    ratio = result.network_losses.mean(1) / result.kernel_loss
    assert float(ratio.log().abs().max()) < 1
    assert result.network_losses.mean(1)[-1] < 0.5 * result.network_losses.mean(1)[0]


def test_a_seed_gives_the_same_numbers(result):
    before, reports = torch.get_rng_state(), []
    again = dynamics_1d.run(dynamics_1d.QUICK, seed=1, progress=lambda *report: reports.append(report))
    np.testing.assert_array_equal(result.outputs, again.outputs)
    assert torch.equal(before, torch.get_rng_state())
    assert ("networks", 20, 20) in reports


def test_command_writes_the_report(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert dynamics_1d.main(["--quick", "--output", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64") == 3
    assert "means differ by" in text
    assert "means differ by" in capsys.readouterr().out


def test_bad_output_is_refused_before_the_work(tmp_path, capsys):
    with pytest.raises(SystemExit):
        dynamics_1d.main(["--quick", "--output", str(tmp_path / "no" / "page.html")])
    assert "cannot write" in capsys.readouterr().err


def test_missing_matplotlib_is_explained(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit):
        dynamics_1d.main(["--output", str(tmp_path / "page.html")])
    assert "ntkit[plot,cli]" in capsys.readouterr().err
