from __future__ import annotations

import pytest

from ntkit._src.experiments import _flow_report as report
from ntkit._src.experiments._flow_costs import Block, Case, Flow, Outcome, Work

NTK, NNGP = (Case(regime, 2, 0, 0) for regime in ("NTK", "NNGP"))


def made(power: float = 2.0, flow: float = 0.5, nngp: float = 1.0) -> list[report.Cost]:
    """Give costs of three sizes whose Gram matrices take n^power seconds."""
    values, seconds = {}, {}
    for case, factor in ((NTK, 1.0), (NNGP, nngp)):
        last = 0
        for n in (10, 20, 40):
            for part in ("train", "test"):
                block = Block(case, part, last, n)
                values[block] = Work((n * (n + 1) - last * (last + 1)) // 2, 7.0)
                seconds[block] = factor * (n**power - last**power)
            values[Flow(case, n)] = Outcome(0.5 + n / 100, 1.0, 0.1, 3.0)
            seconds[Flow(case, n)] = flow
            last = n
    return report.costs(values, seconds)


def test_costs_are_sums_over_blocks():
    one = next(cost for cost in made() if cost.case == NTK and cost.n == 40)
    assert one.pairs == 40 * 41 // 2 and one.operations == (21.0, 3.0)
    assert one.seconds == {"Gram matrix": 1600.0, "integration": 0.5, "test kernel": 1600.0}
    assert report.pair_seconds([one]) == (1600 / 820,)


@pytest.mark.parametrize(("power", "holds"), [(2.0, True), (1.8, True), (1.5, False)])
def test_growth(power, holds):
    assert report.growth(made(power), "n", 2, 0.25, True).holds is holds
    assert report.growth(made(power), "n", 2, 0.25, False).holds is None


def test_growth_needs_two_sizes():
    claim = report.growth([one for one in made() if one.n == 10], "n", 2, 0.25, True)
    assert claim.holds is None and claim.found == "–"


@pytest.mark.parametrize(("flow", "holds"), [(0.5, True), (5000.0, False)])
def test_dominance(flow, holds):
    assert report.dominance(made(flow=flow), True).holds is holds


@pytest.mark.parametrize(("nngp", "holds"), [(0.8, True), (0.4, False), (2.0, False)])
def test_nngp_beside_ntk(nngp, holds):
    assert report.nngp_beside_ntk(made(nngp=nngp), True).holds is holds


def test_table_and_picture():
    table = report.cost_table(made(), "n", "caption")
    assert [row[:3] for row in table.rows[:2]] == [["NTK", "10", "100"], ["NTK", "20", "400"]]
    assert table.rows[2][-2] == "90.0"
    picture = report.cost_picture(made(), "n", "caption", "words")
    left, right = picture.figure.axes
    assert len(left.lines) == 6 and len(right.lines) == 2 and left.get_xscale() == "log"
