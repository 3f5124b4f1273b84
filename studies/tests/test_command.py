from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ntkit_studies import NAMES, find
from ntkit_studies._rebuild import rebuild_reports

QUICK = ["ntk_convergence", "--quick", "--widths", "4", "8", "--draws", "2"]


def test_list(program):
    out = program("list")
    for name in NAMES:
        assert name in out and find(name).reproduces in out
    assert [one["name"] for one in json.loads(program("list", "--json"))["studies"]] == list(NAMES)


def test_every_figure_of_beaglehole_is_there():
    text = " ".join(find(name).reproduces for name in NAMES if "Beaglehole" in find(name).reproduces)
    numbers = {int(word.strip(",")) for word in text.split() if word.strip(",").isdigit()}
    assert set(range(1, 13)) <= numbers


def test_run_and_report(program, tmp_path: Path):
    out = program("run", *QUICK, "--output", "results/one")
    assert "exponent" in out
    for name in ("results.json", "results.csv", "report.html", "manifest.json"):
        assert (tmp_path / "results/one" / name).exists()
    page = (tmp_path / "results/one/report.html").read_bytes()
    (tmp_path / "results/one/report.html").unlink()
    assert "report.html" in program("report", "results/one")
    assert (tmp_path / "results/one/report.html").read_bytes() == page
    written = json.loads(program("report", "results", "--json"))["written"]
    assert written[-1].endswith("index.html")
    index = (tmp_path / "results/index.html").read_text(encoding="utf-8")
    assert 'href="one/report.html"' in index and "ntk_convergence" not in index.split("<tbody>")[0]


def test_help_and_unknown_names(program):
    assert "--quick" in program("run")
    program("run", "ntk_convergence", "--help")
    assert "ntkit run ntk_convergence" in program.out and "--widths" in program.out
    assert "there is no experiment 'digit'" in program.fails("run", "digit")
    assert "holds no results" in program.fails("report", ".")
    program("run", "ntk_convergence", "--quick", "--draws", "0", "--output", "r", status=2)
    assert "draws must be at least" in program.err


def test_a_report_of_one_folder_is_no_index(program, tmp_path: Path):
    program("run", *QUICK, "--output", "one")
    assert [path.name for path in rebuild_reports(tmp_path / "one")] == ["results.csv", "report.html"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corrupted_agop"])
def test_an_interrupted_run_resumes_to_the_same_bytes(name, tmp_path: Path):
    """Ctrl-C once the first cells are stored, then the same command again, against a run in one go."""
    settings = ["--quick", "--n", "128", "--steps", "150", "--seeds", "4", "--threads", "1"]
    command = [sys.executable, "-m", "ntkit", "run", name, *settings]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    first = subprocess.Popen([*command, "--output", str(stopped)], stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    cells = stopped / "cells.jsonl"
    while not (cells.exists() and cells.stat().st_size) and first.poll() is None:
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate()
    assert first.returncode == 130, errors
    assert b"The same command resumes" in errors and not (stopped / "results.json").exists()
    known = cells.read_bytes()
    for folder in (stopped, whole):
        subprocess.run([*command, "--output", str(folder)], check=True, capture_output=True)
    assert cells.read_bytes().startswith(known) and 0 < known.count(b"\n") < 4
    for file in ("results.json", "results.csv"):
        assert (stopped / file).read_bytes() == (whole / file).read_bytes()
