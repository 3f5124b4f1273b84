from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace

import pytest

from ntkit_studies import uci
from ntkit_studies._uci_methods import METHODS
from ntkit_studies._uci_report import scores_of

IRIS = replace(uci.QUICK, only=("iris",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("uci")
    uci.run(IRIS, folder=place)
    return place


def test_every_method_learns(folder):
    outcomes = uci.outcomes_of(uci.EXPERIMENT.read(folder))
    assert tuple(outcomes) == tuple(METHODS)
    assert all(score.accuracy > 0.85 for score in scores_of(outcomes).values())


def test_other_data_sets_and_methods_keep_the_results_and_other_grids_do_not(folder, tmp_path, monkeypatch):
    computed = []
    folder = shutil.copytree(folder, tmp_path / "uci")  # the other tests read what the fixture wrote

    def compute(shared: uci._Shared, cell: uci.Study) -> uci.Outcome:
        computed.append(cell)
        return uci.compute(shared, cell)

    experiment = replace(uci.EXPERIMENT, compute=compute)
    monkeypatch.setattr("ntkit_studies.skeleton._experiment.code_fingerprint", lambda *functions: "code")
    experiment.run(IRIS, folder=folder)
    computed.clear()
    experiment.run(replace(IRIS, only=("iris", "wine"), methods=("RBF SVM",)), folder=folder)
    assert computed == [uci.Study("wine", "RBF SVM")]
    computed.clear()
    experiment.run(replace(IRIS, methods=("RBF SVM",), costs=(1.0,)), folder=folder)
    assert len(computed) == 1


def test_the_largest_data_sets_come_first():
    found = uci.run(replace(uci.QUICK, methods=("RBF SVM",), only=("iris", "wine", "breast-cancer")))
    assert [cell.data for cell in found.values] == ["breast-cancer", "wine", "iris"]
    assert list(uci.outcomes_of(found)["RBF SVM"]) == ["breast-cancer", "iris", "wine"]


def test_program_writes_its_reports(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["--quick", "--only", "iris", "wine", "--output", str(tmp_path / "out"), "--workers", "2"]
    assert uci.main(arguments) == 0
    output = capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for name in METHODS:
        assert name in output and name in page
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    cells = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["cells"]
    assert {one["cell"]["data"] for one in cells} == {"iris", "wine"}
    lines = (tmp_path / "out" / "cells.jsonl").read_text()
    assert uci.main(arguments) == 0
    assert (tmp_path / "out" / "cells.jsonl").read_text() == lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0"], "--workers must be at least 1"),
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--only", "adult"], "--only must name data sets of the file: breast-cancer, digits, iris, wine"),
        (["--methods", "ntk"], "methods must be some of 'NTK SVM'"),
    ],
)
def test_bad_arguments_are_explained(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(uci, "evaluate", lambda *_: pytest.fail("the computation started"))
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as end:
        uci.main([*arguments, "--output", str(tmp_path)])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
