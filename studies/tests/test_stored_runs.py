from __future__ import annotations

import json
from pathlib import Path

import ntkit_studies
from ntkit_studies._index import NAMES
from ntkit_studies._stored_runs import RESULTS, stored_runs


def test_every_stored_run_is_listed_once():
    lines = [line for name in NAMES for line in stored_runs(name)]
    folders = {str(path.parent.relative_to(RESULTS)) for path in RESULTS.rglob("manifest.json")}
    assert {line.partition(":")[0] for line in lines} == folders and len(lines) == len(folders)
    assert ntkit_studies.stored_runs("digits") == []


def test_sizes_and_hours(tmp_path: Path):
    (tmp_path / "toy/small").mkdir(parents=True)
    (tmp_path / "toy/small/manifest.json").write_text(json.dumps({"cell_seconds": [1800, 3600]}))
    rows = ['a,1,1,,1,"n = 2 (paper: n = 9)",x', 'b,1,1,,1,"n = 2, seeds = 3 (paper: n = 9)",x', "c,,,,,,x"]
    (tmp_path / "toy/small/results.csv").write_text("\n".join(["quantity,paper,ours,spread,draws,size,verdict", *rows]))
    assert stored_runs("toy", tmp_path) == ["toy/small: n = 2 (paper: n = 9), 1.5 h"]
    (tmp_path / "toy/small/results.csv").write_text("quantity,paper,ours,spread,draws,size,verdict\n")
    assert stored_runs("toy", tmp_path) == ["toy/small: a size of its own, 1.5 h"]
