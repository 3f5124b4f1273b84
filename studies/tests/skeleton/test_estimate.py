from __future__ import annotations

from dataclasses import replace

import pytest
from studies.tests.skeleton.toy import EXPERIMENT, Settings

from ntkit.errors import MemoryLimitError
from ntkit_studies.skeleton import Estimate, Run
from ntkit_studies.skeleton import _estimate as estimates
from ntkit_studies.skeleton._run import silent


def toy(seconds: float, memory: float):
    """Give the toy experiment with an estimate of so much for each width."""

    def estimate(run: Run[Settings]) -> Estimate:
        count = len(run.settings.widths)
        return Estimate(seconds * count, memory * count, "Guessed.", "fewer widths (--widths)")

    return replace(EXPERIMENT, estimate=estimate)


def run_of(tmp_path) -> Run[Settings]:
    return Run(Settings(), 0, None, tmp_path, silent)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(20.0, "about 1.0 min"), (4e5, "about 13.9 days"), (1e9, "about 95 years")],
)
def test_time_is_said(seconds, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(estimates, "machine_bytes", lambda: 8_000_000_000)
    estimates.announce(toy(seconds, 1e9), run_of(tmp_path))
    said = capsys.readouterr().err
    assert words in said and "3.0 GB of memory, of which this machine has 8.0 GB. Guessed." in said
    assert ("For less time: fewer widths (--widths)." in said) == (seconds > 1e5)


def test_what_cannot_fit_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(estimates, "machine_bytes", lambda: 8_000_000_000)
    message = r"needs about 9.0 GB of memory, and this machine has 8.0 GB. Run it with fewer widths \(--widths\)"
    with pytest.raises(MemoryLimitError, match=message):
        estimates.announce(toy(1.0, 3e9), run_of(tmp_path))
    assert "9.0 GB" in capsys.readouterr().err  # said first
    monkeypatch.setattr(estimates, "machine_bytes", lambda: None)  # a system that does not say
    estimates.announce(toy(1.0, 3e9), run_of(tmp_path))


def test_experiments_without_an_estimate_say_nothing(tmp_path, capsys):
    estimates.announce(EXPERIMENT, run_of(tmp_path))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--quick"], False), ([], False), (["--full"], True), (["--widths", "1", "2"], True)],
)
def test_program_says_it_for_sizes_of_ones_own(options, said, tmp_path, capsys):
    assert toy(1.0, 1.0).main([*options, "--output", str(tmp_path)]) == 0
    assert ("At the speed of this moment the run takes about" in capsys.readouterr().err) == said


def test_program_refuses_before_it_computes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(estimates, "machine_bytes", lambda: 10)
    with pytest.raises(SystemExit, match="2"):
        toy(1.0, 100.0).main(["--full", "--output", str(tmp_path)])
    assert "this machine has 10 bytes" in capsys.readouterr().err and not (tmp_path / "results.json").exists()


@pytest.mark.parametrize("power", [1, 2, 3])
def test_line_through_two_sizes(power):
    found = estimates.line_through(5 + 10**power, 5 + 20**power, 10, power)
    assert found(1000) == pytest.approx(5 + 1000**power)


@pytest.mark.parametrize(("first", "second"), [(3.0, 2.0), (1.0, 100.0)])
def test_noise_leaves_the_power(first, second):
    """A second trial that was not longer, or longer than the power allows: all of it is taken to grow."""
    assert estimates.line_through(first, second, 10, 2)(200) == pytest.approx(100 * second)


def test_fitted_seconds_measures_both_sizes():
    sizes = []
    found = estimates.fitted_seconds(sizes.append, 4, 2)
    assert set(sizes) == {4, 8} and found(10**6) >= 0


def test_memory_of_the_machine():
    assert (estimates.machine_bytes() or 2**40) > 2**20
