from __future__ import annotations

import csv

from studies.tests.skeleton.toy import EXPERIMENT, Settings

from ntkit_studies.skeleton import Comparison, Report
from ntkit_studies.skeleton._report import html, tables, write_report


def test_csv_has_the_papers_value_ours_and_the_verdict(tmp_path):
    results = EXPERIMENT.run(Settings(widths=(2,)))
    write_report(EXPERIMENT.report(results), results, tmp_path)
    with (tmp_path / "results.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["quantity"] == "value" and row["paper"] == "4" and row["ours"] == "4.05"
    assert row["verdict"] == "inside" and row["draws"] == "2"


def test_csv_has_no_digit_that_depends_on_the_processor(tmp_path):
    """Last digits of a fit depend on the BLAS kernel; the second of these numbers is the first, one bit away."""
    results = EXPERIMENT.run(Settings(widths=(2,)))
    for slope in (-0.5032901129712621, -0.503290112971262):
        comparison = Comparison("slope", (slope,), -1.0, error=0.09101564817674083)
        write_report(Report("", "", [], [comparison]), results, tmp_path)
        assert (tmp_path / "results.csv").read_text().splitlines()[
            1
        ] == "slope,-1,-0.503290113,0.09101564818,1,,outside"


def test_page_has_comparisons_first_and_the_manifest_last():
    results = EXPERIMENT.run()
    report = EXPERIMENT.report(results)
    page = html(report, results)
    assert page.index("Beside the paper") < page.index("Values") < page.index("sha256")
    assert results.manifest.versions["torch"] in page and "factor" in page
    assert [table.header[0] for table in tables(report)] == ["quantity", "width"]
