from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from ntkit_studies import cntk_cifar

ROOT = Path(__file__).parents[2]
FOLDER, RECORDS = ROOT / "benchmarks", ROOT / "docs/results/benchmarks"
SCRIPTS = ("scale_cifar", "scale_gram", "scale_plans")
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="benchmarks belong to the repository, not to the wheel")


@pytest.mark.parametrize("name", SCRIPTS)
def test_networks_and_labels_are_those_of_the_experiment(name, monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    try:
        script = importlib.import_module(name)
        assert script.network is cntk_cifar.network and script.label is cntk_cifar.label
        if name == "scale_cifar":
            assert script.ARORA is cntk_cifar.PAPER["flatten"][50_000]
    finally:
        for added in set(sys.modules) - before:
            if str(FOLDER) in str(getattr(sys.modules[added], "__file__", "")):
                del sys.modules[added]


@pytest.mark.parametrize("name", SCRIPTS)
def test_stored_records_name_the_depth_as_the_paper_counts(name):
    """Every stored run had three convolutions and a linear layer, which the paper calls depth 4."""
    text = (RECORDS / f"{name}.json").read_text(encoding="utf-8")
    assert {int(depth) for depth in re.findall(r"CNTK-V\D+?(\d+)", text)} == {4}


def test_all_of_cifar_stands_beside_the_row_of_its_depth():
    rows = json.loads((RECORDS / "scale_cifar.json").read_text(encoding="utf-8"))["tables"][0]["rows"]
    (paper,) = [row for row in rows if row[0].startswith("Arora")]
    assert cntk_cifar.label(4, "flatten") in paper[0]
    assert float(paper[-1]) == cntk_cifar.PAPER["flatten"][50_000][4]
