from __future__ import annotations

import errno
import sys

import pytest
import torch
from studies.tests.skeleton.toy import EXPERIMENT

from ntkit_studies.plots import Table
from ntkit_studies.skeleton import Experiment
from ntkit_studies.skeleton._command_line import one_line, print_table


def test_program_writes_everything(tmp_path, capsys):
    assert EXPERIMENT.main(["--quick", "--output", str(tmp_path / "a" / "b")]) == 0
    names = {path.name for path in (tmp_path / "a" / "b").iterdir()}
    assert names == {"cells.jsonl", "results.json", "manifest.json", "results.csv", "report.html"}
    output = capsys.readouterr().out
    assert "verdict" in output and "width" in output and "report.html" in output.replace("\n", "")


def test_a_report_alone(tmp_path):
    path = tmp_path / "a.html"
    assert EXPERIMENT.main(["--quick", "--output", str(path)]) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["a.html"] and "Toy" in path.read_text()


def test_options_win_over_the_file_of_settings(tmp_path):
    (tmp_path / "a.toml").write_text("widths = [5]\nfactor = 7.0\n")
    arguments = ["--settings", str(tmp_path / "a.toml"), "--factor", "9", "--output", str(tmp_path / "out")]
    assert EXPERIMENT.main(arguments) == 0
    settings = EXPERIMENT.read(tmp_path / "out").settings
    assert (settings.widths, settings.factor) == ((5,), 9.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "--seed must be between 0 and"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--widths", "0"], "widths must be at least 1"),
        (["--quick", "--full"], "not allowed with"),
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--output", "file"], "file is a file"),
        (["--output", "file/a.html"], "file is a file"),
        (["--settings", "missing.toml"], "must be a TOML file"),
    ],
)
def test_bad_options_end_it_before_the_computation(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(Experiment, "_fill", lambda *_: pytest.fail("the computation started"))
    with pytest.raises(SystemExit) as end:
        EXPERIMENT.main(arguments)
    assert end.value.code == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit):
        EXPERIMENT.main(["--quick", "--output", str(tmp_path / "a.html")])
    assert "pip install 'ntkit[plot,cli]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_threads_are_set(tmp_path):
    before = torch.get_num_threads()
    try:
        assert EXPERIMENT.main(["--quick", "--threads", "1", "--output", str(tmp_path)]) == 0
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_nothing_of_a_table_is_cut_off(capsys):
    header, cells = [f"the seconds of part {n}" for n in range(12)], [f"1.2345e+{n:02d}" for n in range(11)]
    print_table(Table(header, [["[bold] words in brackets", *cells]], "What the table shows."))
    caption, _, names, _, row, *_ = capsys.readouterr().out.splitlines()
    assert caption.strip() == "What the table shows."
    assert all(name in names for name in header) and row.split("]")[1].split()[3:] == cells and "[bold]" in row


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a:\n  one, two\nNothing was changed.\nGo on"), "a: one, two. Nothing was changed. Go on"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full: make room, or write to another."),
        (KeyError(), "KeyError"),
    ],
)
def test_errors_are_sentences_on_one_line(error, text):
    assert one_line(error) == text
