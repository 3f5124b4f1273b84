from __future__ import annotations

import numpy as np
import pytest
from studies.tests.label_aware_numbers import scores

from ntkit_studies import _label_aware_report as report
from ntkit_studies._label_aware_scores import METHODS, Scores
from ntkit_studies.skeleton import Verdict


def test_papers_averages():
    table_1 = np.array(list(report.PAPER.values())[:5]).mean(0)
    np.testing.assert_allclose(table_1, [85.91, 86.95, 86.41, 86.40, 86.70, 86.64], atol=0.011)
    assert table_1[1] - table_1[0] == pytest.approx(1.04, abs=0.011)
    for values in report.PAPER.values():
        assert values[1] == max(values[2:])


def numbers():
    same = {name: [[0.5, 0.5], [0.5, 0.5]] for name in METHODS}
    test = same | {"kr-v1": [[0.52, 0.4], [0.56, 0.4]]}
    better = same | {"kr-v1": [[0.9, 0.5], [0.9, 0.5]]}
    first = scores([0.5, 0.5], test, better, same)
    single = scores([0.5], *({m: v[:1] for m, v in one.items()} for one in (test, better, same)))
    return {"deer vs dog": first, "cat vs deer": scores([0.4, 0.5], same, same, same)}, single


def test_tables():
    results, single = numbers()
    rows = {row[0]: row[1:] for row in report.table(results).rows}
    assert rows["CNTK"] == ["50.00", "45.00", "47.50"]
    assert rows["KR-V1"][0] == rows["best by validation"][0] == "54.00"
    gains = {row[0]: row[1:] for row in report.differences_table(results).rows}
    # Draws gain (2, 6) in the first task and (10, 0) in the second: (6, 3) on average.
    assert gains["KR-V1"] == ["+4.00 ± 2.00", "+5.00 ± 5.00", "+4.50 ± 1.50"]
    assert gains["FJLT-V1"] == ["+0.00 ± 0.00", "+5.00 ± 5.00", "+2.50 ± 2.50"]
    assert report.differences_table({"a": single}).rows[0][1:] == ["+2.00", "+2.00"]
    uneven = report.differences_table({"a": single, "b": results["cat vs deer"]})
    assert uneven.rows[0][1:] == ["+2.00", "+5.00 ± 5.00", "+3.50"]
    strengths = report.strengths_table(results)
    assert list(strengths.header) == ["strength", "0.1", "1"]
    assert strengths.rows[0][1:] == ["+4.50 ± 1.50; 4; 0 %", "-2.50 ± 2.50; 0; 0 %"]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((10_000, 2000), Verdict.OUTSIDE),
        ((10_000, 400), Verdict.SMALLER),  # training images alone do not make a run the paper's
        ((2000, 2000), Verdict.SMALLER),
    ],
)
def test_every_number_of_the_paper_has_ours_beside_it(size, expected):
    results, _ = numbers()
    found = report.comparisons(results, dict.fromkeys(results, size))
    assert len(found) == 2 * 12
    first = found[0]
    assert (first.quantity, first.paper, first.ours) == ("deer vs dog, CNTK: accuracy in %", 85.15, (50.0, 50.0))
    assert first.verdict is expected
    assert report.comparisons({"3 vs 8": results["deer vs dog"]}, {"3 vs 8": size}) == []


def test_sizes_of_the_second_table_are_in_its_columns():
    results, _ = numbers()
    (first, *_), own = (
        report.comparisons({"2000": results["deer vs dog"]}, {"2000": (n, 10_000)}) for n in (2000, 500)
    )
    assert first.paper == 44.01 and first.comparable and not own[0].comparable
    assert own[0].paper_size == "2,000 training and 10,000 test images"


def test_whether_a_label_aware_kernel_beats_the_label_agnostic_one():
    results, single = numbers()
    sizes = dict.fromkeys(results, (2000, 400))
    found = {one.what.partition(" less")[0]: one for one in report.claims(results, sizes)}
    # KR-V1 gains (6, 3) over the draws, 4.5 with a standard error of 1.5; FJLT-V1 (0, 5), 2.5 with an error of 2.5.
    assert found["KR-V1"].found == "+4.50 ± 1.50" and found["KR-V1"].verdict is Verdict.HOLDS
    assert found["FJLT-V1"].found == "+2.50 ± 2.50" and found["FJLT-V1"].verdict is Verdict.FAILS
    assert found["FJLT-V1"].paper == "LANTK outperforms CNTK (by 1.45)"  # 86.75 - 85.15, and 84.85 - 83.55
    assert {one.verdict for one in report.claims(results, dict.fromkeys(results, (20, 20)))} == {Verdict.SMALLER}
    assert {one.verdict for one in report.claims({"deer vs dog": single}, sizes)} == {Verdict.SMALLER}
    assert report.claims({"3 vs 8": single}, {"3 vs 8": (2000, 400)}) == []


def test_one_draw_is_compared_image_by_image():
    zero = {"kr-v1": [[0.0, 0.0]]}
    right = {"kr-v1": np.array([[[1, 1, 1, 0] * 25, [1, 1, 1, 1] * 25]], dtype=bool)}
    base = np.array([[1, 1, 0, 0] * 25], dtype=bool)
    tables = {"kr-v1": np.array([[0.75, 1.0]])}, *({m: np.array(v) for m, v in zero.items()},) * 3
    one = Scores((0.1, 1.0), np.array([0.5]), *tables, right, base)
    # 25 of 100 images more, and with the better strength 50: variances p (1 - p) n / (n - 1).
    assert one.paired_error("kr-v1") == pytest.approx((0.25 * 0.75 / 99) ** 0.5)
    assert one.paired_error("kr-v1", on_test=True) == pytest.approx((0.5 * 0.5 / 99) ** 0.5)
    found = report.claims({"deer vs dog": one}, {"deer vs dog": (10_000, 2000)})
    assert [row.found for row in found] == ["+25.00 ± 4.35 over test images", "+50.00 ± 5.03 over test images"]
    assert {row.verdict for row in found} == {Verdict.HOLDS} and "strength by test" in found[1].what
    quantities = [row.quantity for row in report.comparisons({"deer vs dog": one}, {"deer vs dog": (10_000, 2000)})]
    assert [q.partition(", ")[2] for q in quantities] == [
        "CNTK: accuracy in %", "KR-V1: accuracy in %", "KR-V1, strength by test: accuracy in %",
    ]  # fmt: skip
