from __future__ import annotations

import csv

from tests.experiments.skeleton.toy import EXPERIMENT, Settings

from ntkit._src.experiments.skeleton._report import html, tables, write_report


def test_csv_has_the_papers_value_ours_and_the_verdict(tmp_path):
    results = EXPERIMENT.run(Settings(widths=(2,)))
    write_report(EXPERIMENT.report(results), results, tmp_path)
    with (tmp_path / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["quantity"] == "value" and float(row["paper"]) == 4.0 and float(row["ours"]) == 4.05
    assert row["verdict"] == "inside" and row["draws"] == "2"


def test_page_has_comparisons_first_and_the_manifest_last():
    results = EXPERIMENT.run()
    report = EXPERIMENT.report(results)
    page = html(report, results)
    assert page.index("Beside the paper") < page.index("Values") < page.index("sha256")
    assert results.manifest.versions["torch"] in page and "factor" in page
    assert [table.header[0] for table in tables(report)] == ["quantity", "width"]
