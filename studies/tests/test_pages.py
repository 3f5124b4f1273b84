"""The generated parts of the pages are current, the commands of studies on them exist, and stored results have their verdicts."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from tests.test_pages import COMMANDS, PAGES

from ntkit_studies import NAMES, find
from ntkit_studies._index import of_folder
from ntkit_studies.skeleton import write_report
from ntkit_studies.skeleton._records import record_lines, rounded

ROOT = Path(__file__).parents[2]


def load_tool():
    sys.path.insert(0, str(ROOT / "tools"))  # where pages.py finds figures.py
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tools" / "pages.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = load_tool()


@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("ntkit run")])
def test_study_exists_with_its_options(command, capsys):
    words = command.split()[2:]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    named = words[0] if words and words[0].islower() else "cntk_cifar"
    assert named in NAMES
    assert find(named).main(["--help"]) == 0
    assert options <= set(re.findall(r"--[\w-]+", capsys.readouterr().out))


@pytest.mark.parametrize("page", PAGES)
def test_generated_parts_are_current(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert TOOL.current(page, text) == text, "run python tools/pages.py"


def part(name: str) -> str:
    return f"before\n<!-- {name}: begin -->\nold\n<!-- {name}: end -->\nafter\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("speed of light", "nothing makes"),
        ("run kernel_evolution, No such section", "no table in a section 'No such section'"),
    ],
)
def test_a_part_that_cannot_be_made_is_named(name, message):
    with pytest.raises(SystemExit, match=message):
        TOOL.current("docs/guide.md", part(name))


def test_a_page_that_has_lost_a_part_is_named():
    with pytest.raises(SystemExit, match="lacks <!-- speed: begin -->"):
        TOOL.current("README.md", "no part\n")


def test_a_part_shows_the_tables_that_a_benchmark_stored(tmp_path, monkeypatch):
    table = {"caption": "Seconds.", "header": ["|x|", "seconds"], "rows": [["1", "2.5"]]}
    record = {"command": "python benchmarks/one.py", "commit": "0123456789", "date": "2026-01-02T03:04:05+00:00",
              "machine": {"processor": "a processor", "threads": 1}, "load": [0.25, 0, 0], "tables": [table]}  # fmt: skip
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/one.json").write_text(json.dumps(record), encoding="utf-8")
    monkeypatch.setattr(TOOL, "RESULTS", tmp_path)
    assert TOOL.current("docs/guide.md", part("benchmark one")) == (
        "before\n<!-- benchmark one: begin -->\nSeconds.\n\n| \\|x\\| | seconds |\n|---|---|\n| 1 | 2.5 |\n\n"
        "`python benchmarks/one.py`; a processor, 1 thread, load 0.2 at the start; commit 01234567, 2026-01-02.\n"
        "<!-- benchmark one: end -->\nafter\n"
    )


STORED = sorted(path.parent for path in (ROOT / "studies/results").rglob("results.*"))


@pytest.mark.parametrize("folder", sorted(set(STORED)), ids=lambda path: path.name)
def test_stored_results_have_manifests_and_verdicts_by_rule(folder, tmp_path, monkeypatch: pytest.MonkeyPatch):
    experiment = of_folder(folder)
    results = experiment.read(folder)
    monkeypatch.setattr("ntkit_studies.skeleton._report.html", lambda *_: "")  # the slow test has the pages
    write_report(experiment.report(results), results, tmp_path)
    found, stored = ((where / "results.csv").open(encoding="utf-8", newline="") for where in (tmp_path, folder))
    with found, stored:
        rows = zip(csv.reader(found), csv.reader(stored), strict=True)
        pairs = [pair for row in rows for pair in zip(*row, strict=True)]
    assert not [pair for pair in pairs if not same(*pair)]


@pytest.mark.parametrize("folder", sorted(set(STORED)), ids=lambda path: path.name)
def test_stored_results_have_one_record_per_line(folder):
    for name, records in (("results", "cells"), ("manifest", "")):
        text = (folder / f"{name}.json").read_text(encoding="utf-8")
        content = json.loads(text)
        assert text == record_lines(content, records)
        assert all(one["result"] == rounded(one["result"]) for one in content.get("cells", ()))


def same(found: str, stored: str) -> bool:
    """Compare texts as texts, and numbers within 1e-8: the last of their ten digits may depend on the processor."""
    try:
        return float(found) == pytest.approx(float(stored), rel=1e-8, abs=1e-12, nan_ok=True)
    except ValueError:
        return found == stored


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted(set(STORED)), ids=lambda path: path.name)
def test_stored_results_give_their_pages(folder, tmp_path, coarse_pictures):
    experiment = of_folder(folder)
    results = experiment.read(folder)
    write_report(experiment.report(results), results, tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 1000


def test_there_are_stored_results():
    assert STORED
