from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit_studies import dynamics_1d


@pytest.fixture(scope="module")
def result():
    (found,) = dynamics_1d.run(dynamics_1d.QUICK, seed=1).values.values()
    return found


def test_shapes_and_what_the_kernels_say(result):
    settings = dynamics_1d.QUICK
    assert np.shape(result.outputs) == (3, settings.members, settings.grid)
    assert np.shape(result.mean) == np.shape(result.std) == (3, settings.grid)
    assert not np.any(result.mean[0])
    assert (np.diff(result.kernel_loss) < 0).all()
    expected = np.exp(-np.outer(result.loss_times, result.eigenvalues))
    np.testing.assert_allclose(result.kernel_left, expected, rtol=1e-6, atol=1e-9)


def test_networks_follow_the_kernels(result):
    """Eight networks of width 64: within what so few can tell."""
    deviation = (np.mean(result.outputs, axis=1) - result.mean) / result.std * dynamics_1d.QUICK.members**0.5
    assert np.square(deviation).mean() < 3
    losses = np.mean(result.network_losses, axis=1)
    assert np.abs(np.log(losses / result.kernel_loss)).max() < 1
    assert losses[-1] < 0.5 * losses[0]


def test_a_seed_gives_the_same_numbers(result):
    before, reports = torch.get_rng_state(), []
    again = dynamics_1d.run(dynamics_1d.QUICK, seed=1, progress=lambda *report: reports.append(report))
    assert list(again.values.values()) == [result]
    assert torch.equal(before, torch.get_rng_state())
    assert ("networks", 20, 20) in reports


def test_command_writes_the_report(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert dynamics_1d.main(["--quick", "--output", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64") == 3
    assert "means differ by" in text
    assert "means differ by" in capsys.readouterr().out
