from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ntkit._src.cli import _studies


class Toy:
    """A study that only says what it was given."""

    name, reproduces, title, files = "toy", "A paper, Table 1", "Measures nothing.", None

    def main(self, arguments):
        print(f"ran with {arguments}")
        return 3


@pytest.fixture
def toys(monkeypatch):
    """A distribution of studies, as its entry point gives it."""
    found = SimpleNamespace(NAMES=("toy",), find=lambda name: Toy(), rebuild_reports=lambda folder: [folder / "a.html"])
    found.stored_runs = lambda name: [f"{name}: 5 images, 2 h"]
    point = SimpleNamespace(load=lambda: found)
    asked = {"group": "ntkit.studies", "name": "papers"}
    monkeypatch.setattr(_studies, "entry_points", lambda **given: [point] if given == asked else [])


def test_the_commands_use_what_the_entry_point_gives(program, toys):
    assert program("list") == "toy  A paper, Table 1\n     Measures nothing.\n     stored: toy: 5 images, 2 h\n"
    assert json.loads(program("list", "--json"))["studies"] == [
        {
            "name": "toy",
            "reproduces": "A paper, Table 1",
            "title": "Measures nothing.",
            "data": None,
            "stored": ["toy: 5 images, 2 h"],
        }
    ]
    assert program("run", "toy", "--quick", "4", status=3) == "ran with ['--quick', '4']\n"
    assert program("report", "results").split() == [str(Path("results/a.html"))]


@pytest.mark.parametrize("command", [["list"], ["run", "digits", "--quick"], ["report", "results"]])
def test_without_the_studies_one_sentence_says_how_to_install_them(program, monkeypatch, command):
    monkeypatch.setattr(_studies, "entry_points", lambda **_: importlib.metadata.EntryPoints())
    assert "pip install ntkit-studies" in program.fails(*command)
    assert "--quick" in program("run")
    assert _studies._names("dig") == []


def test_the_command_line_imports_no_study():
    code = "import sys, ntkit._src.cli._app; print([name for name in sys.modules if name.startswith('ntkit_studies')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
