from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from ntkit_studies.plots import Table

FILE = Path(__file__).parents[2] / "benchmarks" / "history.py"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="benchmarks belong to the repository, not to the wheel")

ROWS = [
    {
        "case": "conv", "native float32": 1e-3, "native float64": 3e-3, "reference": 0.1,
        "neural-tangents float32": 0.2, "neural-tangents float64": 0.15, "ratio float32": 150.0, "ratio float64": 50.0,
        "of the roofline, float32": 0.6, "speed-up by threads": 1.9,
    },
    {"case": "dense", "native float32": 1e-5, "native float64": 2e-5, "ratio float32": None, "ratio float64": None},
]  # fmt: skip

TABLES = [
    Table(["call", "float64"], [["1 x 1", "952"], ["[bold]Gram[/bold] of 4 :smile:", "78"]], "Microseconds for one entry."),
    Table(["what", "ntkit", "peer"], [["a step", "0.049 ms", ""], ["memory", "–", "1 GB"]], "One run each."),
]  # fmt: skip


@pytest.fixture
def history(monkeypatch):
    spec = importlib.util.spec_from_file_location("history", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "history", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_record_has_milliseconds_and_ratios_of_each_case(history):
    made = history.record({"threads": 2}, ROWS, "peer 1.0")
    times = made["milliseconds per entry"]
    assert times["conv"] == pytest.approx({"float32": 1, "float64": 3, "reference": 100, "neural-tangents": 150})
    assert made["ratios"] == {"conv": {"float32": 150.0, "float64": 50.0}, "dense": {}}
    assert made["efficiency"] == {"conv": {"of the roofline, float32": 0.6, "speed-up by threads": 1.9}, "dense": {}}
    assert made["machine"] == {"threads": 2} and made["peer"] == "peer 1.0" and made["commit"] and made["date"]


def test_records_are_added_to_the_end(history, tmp_path):
    path = tmp_path / "results" / "benchmarks.jsonl"
    for number in range(2):
        history.append_record(path, {"commit": str(number)})
    assert [json.loads(line)["commit"] for line in path.read_text().splitlines()] == ["0", "1"]


def test_a_stored_record_has_the_tables_and_where_they_come_from(history, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks/small_calls.py", "--repeats", "3", "--store"])
    start = history.Start("0" * 40, "2026-01-01T00:00:00+00:00", (0.5, 0.25, 0.0))
    path = history.store("small_calls", TABLES, start, tmp_path / "benchmarks")
    made = json.loads(path.read_text(encoding="utf-8"))
    assert path == tmp_path / "benchmarks" / "small_calls.json"
    assert (
        made["benchmark"] == "small_calls" and made["command"] == "python benchmarks/small_calls.py --repeats 3 --store"
    )
    assert (made["commit"], made["date"], made["load"]) == (start.commit, start.date, [0.5, 0.25, 0.0])
    assert set(made["machine"]) == {"processor", "system", "cores", "threads"}
    assert {"python", "torch", "numpy", "ntkit"} <= set(made["versions"])
    assert [Table(**one) for one in made["tables"]] == TABLES


def test_a_run_that_fails_leaves_the_last_record_as_it_was(history, tmp_path, monkeypatch):
    start = history.started()
    before = history.store("planes", TABLES, start, tmp_path).read_bytes()

    def fails(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", fails)
    with pytest.raises(OSError, match="no space"):
        history.store("planes", TABLES[:1], start, tmp_path)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("planes.json", before)]


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ([], ""),
        (["--data", "/srv/data/cifar.npz"], " --data cifar.npz"),
        (["--data=/srv/data/cifar.npz", "--n=50"], " --data=cifar.npz --n=50"),
        (["--data", "../data/cifar.npz", "--folder", "~/grams"], " --data cifar.npz --folder grams"),
        (["--peer", "/opt/peer/bin/python3.11"], " --peer PYTHON"),
        (["--peer", ".venv-peer/bin/python"], " --peer .venv-peer/bin/python"),
        (["--match", "softmax at 1/d", "--only", "tanh"], " --match 'softmax at 1/d' --only tanh"),
    ],
)
def test_a_command_names_no_place_of_the_machine(history, typed, stored):
    assert history.command_line(["/home/me/ntkit/benchmarks/rfm.py", *typed]) == f"python benchmarks/rfm.py{stored}"


@pytest.mark.parametrize("stored", [False, True])
def test_what_is_printed_is_what_is_stored(history, tmp_path, monkeypatch, capsys, stored):
    monkeypatch.setattr(history, "RESULTS", tmp_path)
    history.publish("planes", TABLES, history.started(), stored)
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line[1:-1].replace("┃", "│").split("│")] for line in lines if line[:1] in "┃│"]
    assert rows == [row for table in TABLES for row in [table.header, *table.rows]]
    words = " ".join(line for line in lines if line[:1].isspace() or line[:1].isalpha()).split()
    assert words == " ".join(table.caption for table in TABLES).split()
    assert [one.name for one in tmp_path.iterdir()] == ["planes.json"] * stored


def test_a_table_without_rows_prints_its_header(history, capsys):
    history.show(Table(["network", "ntkit"], [], "Nothing."))
    assert "network" in capsys.readouterr().out


def test_a_start_tells_of_changes_in_what_is_measured_alone(history, monkeypatch):
    asked = []

    def git(*arguments):
        asked.append(arguments)
        return "0" * 40 if arguments[0] == "rev-parse" else " M src/ntkit/__init__.py"

    monkeypatch.setattr(history, "_git", git)
    assert history.started().commit == "0" * 40 + "-changed"
    assert ":/src" in asked[-1] and ":/benchmarks" in asked[-1] and not any("docs" in one for one in asked[-1])


def test_without_git_the_commit_is_unknown(history, monkeypatch):
    monkeypatch.setattr(history, "_git", lambda *_: "unknown")
    assert history.started().commit == "unknown"


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(1034.2, 3, "1030"), (0.00073456, 3, "0.000735"), (9.4, 3, "9.4"), (1000, 2, "1000"), (0.061, 2, "0.061"), (None, 3, "–")],
)  # fmt: skip
def test_numbers_have_significant_digits_and_no_exponent(history, value, digits, text):
    assert history.number(value, digits) == text
