from __future__ import annotations

import csv
from dataclasses import replace

from studies.tests.skeleton.toy import EXPERIMENT, Settings

from ntkit_studies.skeleton import Claim
from ntkit_studies.skeleton._claim import claims_table
from ntkit_studies.skeleton._report import html, tables, write_report

CLAIMS = [
    Claim("rises", "rises", "0.1 to 0.9", True),
    Claim("falls", "falls", "0.1", False),
    Claim("grows", "grows", "0.1", None, "n = 2", "n = 9"),
    Claim("other", "-", "3", True),
]
VERDICTS = ["holds", "does not hold", "smaller than the paper's (not compared)", "ours"]


def test_table_has_the_verdict_of_each():
    assert [row[-1] for row in claims_table(CLAIMS).rows] == VERDICTS
    assert claims_table(CLAIMS).rows[2][-2] == "n = 2 (paper: n = 9)"


def test_claims_follow_the_numbers_in_page_and_csv(tmp_path):
    results = EXPERIMENT.run(Settings(widths=(2,)))
    report = replace(EXPERIMENT.report(results), claims=CLAIMS)
    assert [table.header[0] for table in tables(report)[:2]] == ["quantity", "what"]
    page = html(report, results)
    assert page.index("<td>inside</td>") < page.index("does not hold")
    write_report(report, results, tmp_path)
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == ["inside", *VERDICTS]
    assert rows[1]["quantity"] == "rises" and rows[1]["ours"] == "0.1 to 0.9"
