"""Every stored row that quotes a paper answers it: by a rule, at the size it was run at, and no spread passes for agreement."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ntkit_studies.skeleton import Claim, Comparison, Verdict
from ntkit_studies.skeleton._report import Report, _csv

RESULTS = Path(__file__).parents[1] / "results"
STORED = sorted(RESULTS.rglob("results.csv"))
DECIDED = {Verdict.INSIDE, Verdict.WIDE, Verdict.OUTSIDE, Verdict.HOLDS, Verdict.FAILS}


def fault(row: dict[str, str]) -> str | None:
    """Say what is wrong with a row of ``results.csv``; None if nothing is."""
    if row["paper"] in ("", "-"):
        return None if row["verdict"] == Verdict.OURS.value else "a verdict on nothing"
    if row["verdict"] == Verdict.SMALLER.value:
        return None if "(paper: " in row["size"] else "no rule, and not smaller than the paper's"
    if row["verdict"] not in {one.value for one in DECIDED}:
        return "not decided"
    if row["verdict"] == Verdict.INSIDE.value and float(row["spread"]) > (abs(float(row["paper"])) or 1) / 10:
        return "inside a spread above a tenth of the value"
    return None


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.parent.name)
def test_every_row_that_quotes_a_paper_answers_it(path):
    with path.open(encoding="utf-8", newline="") as file:
        faults = {row["quantity"]: fault(row) for row in csv.DictReader(file)}
    assert not {quantity: wrong for quantity, wrong in faults.items() if wrong}


ROWS = [
    (Claim("q", "says", "1", True), None),
    (Claim("q", "says", "1", None, "n = 1", "n = 2"), None),
    (Claim("q", "-", "1"), None),
    (Claim("q", "says", "1"), "no rule, and not smaller than the paper's"),
    (Claim("q", "says", "1", None, "n = 2", "n = 2"), "no rule, and not smaller than the paper's"),
    (Comparison("q", (1.0, 1.1), 1.05), None),
    (Comparison("q", (1.0, 3.0), 2.0), None),  # its verdict says that the spread is wide
    (Comparison("q", (1.0,), 2.0, None, False), "no rule, and not smaller than the paper's"),
    (Comparison("q", (-8.0, 30.0, -30.0), 2.0), "not decided"),
    (Comparison("q", (1.0,), 2.0), "not decided"),
]


@pytest.mark.parametrize(("row", "wrong"), ROWS)
def test_a_row_without_an_answer_is_found(row, wrong):
    numbers, claims = ([row], []) if isinstance(row, Comparison) else ([], [row])
    (read,) = csv.DictReader(_csv(Report("t", "", [], numbers, claims)).splitlines())
    assert fault(read) == wrong


def test_the_wide_spread_and_the_old_words_are_found():
    row = {"paper": "2.04", "spread": "31.9", "verdict": "inside", "size": ""}
    assert fault(row) == "inside a spread above a tenth of the value"
    for old in ("nothing asked", "other settings", "no figure", "above", "below"):
        assert fault(row | {"verdict": old}) == "not decided"
    assert fault(row | {"paper": "-", "verdict": "holds"}) == "a verdict on nothing"


def test_there_are_stored_results():
    assert STORED
