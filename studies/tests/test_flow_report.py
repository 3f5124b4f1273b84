from __future__ import annotations

from dataclasses import replace

import pytest

from ntkit_studies import _flow_report as report
from ntkit_studies._flow_costs import Block, Case, Flow, Outcome, Work

SIZES = "ours", "the paper's"
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


@pytest.mark.parametrize(
    ("power", "paper", "holds"),
    [
        (2.0, 40, True),
        (1.8, 40, True),
        (1.5, 40, False),
        (2.5, 40, False),
        (2.0, 41, True),
        (1.5, 41, None),
        (2.5, 41, False),
    ],
)
def test_growth(power, paper, holds):
    """Sizes below the paper's may have too small an exponent, for fixed costs, but not too large a one."""
    claim = report.growth(made(power), "n", 2, 0.25, True, SIZES, paper)
    assert claim.holds is holds and claim.what.endswith("in n, 20 to 40") and (claim.size, claim.paper_size) == SIZES
    assert claim.found == f"{power:.3g} (each step: 10 to 20: {power:.2f}, 20 to 40: {power:.2f})"
    assert report.growth(made(power), "n", 2, 0.25, False, SIZES, paper).holds is None


def test_growth_is_that_of_the_last_doubling():
    """A fixed cost lowers the exponents, that of the smallest sizes most."""
    slow = [replace(one, seconds=dict(one.seconds) | {"Gram matrix": 300 + one.n**2}) for one in made()]
    claim = report.growth(slow, "n", 2, 0.6, True, SIZES, 10_000)
    assert claim.holds is True and claim.found == "1.44 (each step: 10 to 20: 0.81, 20 to 40: 1.44)"


def test_growth_needs_two_sizes():
    claim = report.growth([one for one in made() if one.n == 10], "n", 2, 0.25, True, SIZES, 40)
    assert claim.holds is None and claim.found == "–"


@pytest.mark.parametrize(("flow", "holds"), [(0.5, True), (5000.0, False)])
def test_dominance(flow, holds):
    """The paper's sentence is about n = 10,000: a smaller run has no answer."""
    assert report.dominance(made(flow=flow), True, SIZES).holds is None
    large = [replace(one, n=10_000) for one in made(flow=flow) if one.n == 40]
    assert report.dominance(large, True, SIZES).holds is holds
    assert report.dominance(large, False, SIZES).holds is None


@pytest.mark.parametrize(("nngp", "holds"), [(0.8, True), (0.4, False), (2.0, False)])
def test_nngp_beside_ntk(nngp, holds):
    claim = report.nngp_beside_ntk(made(nngp=nngp), True, SIZES)
    assert claim.holds is holds and claim.what.endswith("n = 40")


def test_table_and_picture():
    table = report.cost_table(made(), "n", "caption")
    assert [row[:3] for row in table.rows[:2]] == [["NTK", "10", "100"], ["NTK", "20", "400"]]
    assert table.rows[2][-2] == "90.0"
    picture = report.cost_picture(made(), "n", "caption", "words")
    left, right = picture.figure.axes
    assert len(left.lines) == 6 and len(right.lines) == 2 and left.get_xscale() == "log"
