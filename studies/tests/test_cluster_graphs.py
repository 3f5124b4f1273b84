"""The study of kernels of higher order: quickly, and its rules."""

from __future__ import annotations

from pathlib import Path

from ntkit_studies import cluster_graphs
from ntkit_studies.skeleton import Verdict


def test_quick_run(tmp_path: Path) -> None:
    assert cluster_graphs.EXPERIMENT.main(["--quick", "--output", str(tmp_path)]) == 0
    results = cluster_graphs.EXPERIMENT.read(tmp_path)
    assert [len(one.sizes["3"]) for one in results.values.values()] == [2, 2]


def test_rules() -> None:
    settings = cluster_graphs.Settings(orders=(2, 3), widths=(10, 100, 1000))
    records = [
        cluster_graphs.Record({"2": [1.0, 1.0, 1.0], "3": [1.0, 10**-power, 10 ** (-2 * power)]})
        for power in (1.0, 1.02)
    ]
    (number,) = cluster_graphs.comparisons(settings, records)
    assert number.verdict is Verdict.INSIDE and number.paper == -1
    assert [claim.holds for claim in cluster_graphs.claims(settings, records)] == [True, True]
    slow = [cluster_graphs.Record({"2": [1.0, 2.0, 4.0], "3": [1.0, 0.5, 0.25]})]
    assert [claim.holds for claim in cluster_graphs.claims(settings, slow)] == [False, False]
