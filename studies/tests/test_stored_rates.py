"""No stored rate is above what the machine's arithmetic allows, and stored counts are those of the code.

The stored runs of Figs 5 to 8 of Golikov et al. 2022 were counted anew after they ran; the seconds are as measured. For exact
kernels the count per pair is that of the tape. For the empirical kernel of the Myrtle network every block was computed again
with both counters: torch's formulas gave the stored number to the digit, and ``Operations``, which knows groups, the new one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ntkit import infinite_width
from ntkit.diagnostics import pair_operations
from ntkit_studies._deep_networks import myrtle

RESULTS = Path(__file__).parents[1] / "results"
BENCHMARKS = Path(__file__).parents[2] / "docs" / "results"
NETWORKS = {"myrtle_by_size": myrtle, "myrtle_by_resolution": myrtle}
COUNTED = sorted(
    path.parent.name for path in RESULTS.glob("*/results.json") if '"operations"' in path.read_text(encoding="utf-8")
)
RECORDS = [json.loads(line) for line in (BENCHMARKS / "benchmarks.jsonl").read_text(encoding="utf-8").splitlines()]

_ENTRY = 39 + 2 * 4
"""Operations of one entry of the roofline: a ReLU in single precision after a window of 3 x 3, with tangent kernel."""


def _cells(name: str) -> list[tuple[dict[str, Any], dict[str, Any], float]]:
    """Give each cell of a stored run with its result and its seconds."""
    results, manifest = (
        json.loads((RESULTS / name / f"{file}.json").read_text(encoding="utf-8")) for file in ("results", "manifest")
    )
    return [
        (one["cell"], one["result"], seconds)
        for one, seconds in zip(results["cells"], manifest["cell_seconds"], strict=True)
    ]


def _roofline(processor: str, threads: int) -> float:
    """Give the highest roofline of a thread that a benchmark on this processor found, in entries a second, times the threads."""
    found = [
        one["entries x layers / s, float32"] / one["of the roofline, float32"] / record["machine"]["threads"]
        for record in RECORDS
        if record["machine"].get("processor") == processor
        for one in record.get("efficiency", {}).values()
        if "of the roofline, float32" in one
    ]
    return threads * max(found)


def test_there_are_runs_with_counts() -> None:
    assert set(COUNTED) == set(NETWORKS)


@pytest.mark.parametrize("name", COUNTED)
def test_no_run_computes_faster_than_its_machine(name: str) -> None:
    machine = json.loads((RESULTS / name / "manifest.json").read_text(encoding="utf-8"))["machine"]
    most = _ENTRY * _roofline(machine["processor"], machine["threads"])
    for cell, result, seconds in _cells(name):
        if "operations" in result:
            assert result["operations"] / seconds < most, cell


def test_no_benchmark_is_above_its_roofline() -> None:
    for record in RECORDS:
        for name, found in record.get("efficiency", {}).items():
            shares = {key: value for key, value in found.items() if key.startswith("of the roofline")}
            assert all(0 < share < 1 for share in shares.values()), (record["commit"], name, shares)
            if "entries x layers / s, float32" in found:  # Gram matrices and vectors have no share
                machine = record["machine"]
                assert found["entries x layers / s, float32"] < _roofline(machine["processor"], machine["threads"]), (
                    name
                )


def test_no_plan_assumes_more_than_the_roofline() -> None:
    record = json.loads((BENCHMARKS / "benchmarks" / "scale_plans.json").read_text(encoding="utf-8"))
    core = _roofline(record["machine"]["processor"], 1)
    rates = {
        row[0]: float(row[1])
        for table in record["tables"]
        if table["header"][-1] == "per second"
        for row in table["rows"]
    }
    counted = {name: rate for name, rate in rates.items() if name.startswith("operations")}
    entries = {name: rate for name, rate in rates.items() if name.startswith("entries x layers")}
    assert counted and entries
    assert all(rate < _ENTRY * core for rate in counted.values()), counted
    assert all(rate < core for rate in entries.values()), entries


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("myrtle_by_resolution", 8),
        ("myrtle_by_resolution", 16),
        *(pytest.param("myrtle_by_resolution", side, marks=pytest.mark.slow) for side in (32, 48, 64)),
        pytest.param("myrtle_by_size", 32, marks=pytest.mark.slow),
    ],
)
def test_stored_counts_of_exact_kernels_are_those_of_the_code(name: str, side: int) -> None:
    limit = infinite_width(NETWORKS[name](3, 1))
    found = [
        (cell["case"]["regime"], result)
        for cell, result, _ in _cells(name)
        if "part" in cell and (cell["case"]["side"] or 32) == side and cell["case"]["regime"] != "empirical NTK"
    ]
    assert found
    for regime in ("NTK", "NNGP"):
        each = pair_operations(limit.ntk if regime == "NTK" else limit.nngp, (3, side, side))
        for own, result in found:
            assert own != regime or result["operations"] == each * result["pairs"]
