from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

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


@pytest.fixture
def history():
    spec = importlib.util.spec_from_file_location("history", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
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
