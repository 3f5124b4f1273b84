from __future__ import annotations

import math

import numpy as np
import pytest

from ntkit_studies.skeleton import Comparison, Verdict, verdict
from ntkit_studies.skeleton._verdict import comparison_table, half_width


@pytest.mark.parametrize(
    ("ours", "paper", "error", "comparable", "expected"),
    [
        ([9.0, 10.0, 11.0], 10.5, None, True, Verdict.INSIDE),
        ([1.0, 2.0, 3.0], 2.5, None, True, Verdict.WIDE),
        ([1.0, 2.0, 3.0], 2.5, None, False, Verdict.SMALLER),
        ([1.0, 2.0, 3.0], None, None, True, Verdict.OURS),
        ([1.0, 1.01, 1.02], 2.0, None, True, Verdict.OUTSIDE),
        ([1.0, 1.01, 1.02], 0.5, None, True, Verdict.OUTSIDE),
        ([1.0], 1.1, None, True, Verdict.UNDECIDED),
        ([1.0], 1.1, math.nan, True, Verdict.UNDECIDED),
        ([1.0], 1.19, 0.1, True, Verdict.INSIDE),
        ([1.0], 0.9, 0.1, True, Verdict.WIDE),
        ([1.0], 1.2, 0.1, True, Verdict.OUTSIDE),
        ([1.0], 0.8, 0.1, True, Verdict.OUTSIDE),
        ([1.0, 1.0], 1.0, None, True, Verdict.INSIDE),
        # What was once "inside": the spread of the ratio of planes and ships is 16 times the paper's value.
        ([-65.2, 8.2, 9.9, 2.9, 3.1], 2.04, None, True, Verdict.UNDECIDED),
        ([0.5, -0.5], 0.0, None, True, Verdict.UNDECIDED),
    ],
)
def test_the_rule(ours, paper, error, comparable, expected):
    assert verdict(ours, paper, error, comparable) is expected
    assert Comparison("q", tuple(ours), paper, error, comparable).verdict is expected


def test_an_error_is_not_used_where_there_are_draws():
    assert verdict([1.0, 1.01, 1.02], 2.0, 100.0) is Verdict.OUTSIDE


@pytest.mark.parametrize("n", [2, 3, 10])
def test_one_more_draw_is_inside_in_95_of_100_cases(n):
    draws = np.random.default_rng(n).normal(3.0, 2.0, (4000, n + 1))
    inside = [verdict(list(row[:-1]), float(row[-1])) is not Verdict.OUTSIDE for row in draws]
    assert abs(np.mean(inside) - 0.95) < 4 * (0.95 * 0.05 / 4000) ** 0.5


def test_half_width_of_three_draws():
    # Student's quantile with two degrees of freedom is 4.302653.
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.302653 * (4 / 3) ** 0.5, rel=1e-6)


def test_table():
    rows = comparison_table(
        [Comparison("a", (1.0, 3.0), 20.0, None, False, "3 draws", "9 draws"), Comparison("b", (1.0,))]
    ).rows
    assert rows[0] == [
        "a",
        "20",
        "2",
        "1.4",
        "2",
        "3 draws (paper: 9 draws)",
        "smaller than the paper's (not compared)",
    ]
    assert rows[1] == ["b", "–", "1", "–", "1", "", "ours"]
