from __future__ import annotations

from dataclasses import dataclass

import pytest

from ntkit.plots import new_figure
from ntkit_studies._by_seed import Seed, by_seed, is_positive, mean_and_spread, reaches, size_text
from ntkit_studies.skeleton import Claim, Comparison, Run, Verdict


@dataclass(frozen=True)
class Settings:
    scale: float = 1.0
    seeds: int = 2
    n: int = 10
    widths: tuple[int, ...] = (4, 8)


@dataclass(frozen=True)
class Number:
    value: float


def measure(run: Run[Settings], cell: Seed) -> Number:
    return Number(run.settings.scale * cell.seed)


def experiment():
    functions = {
        "__doc__": "Two\n  lines.",
        "sizes": lambda size, from_file: Settings(),
        "measure": measure,
        "claims": lambda settings, records: [
            Claim("all", "large", mean_and_spread([one.value for one in records]), True)
        ],
        "draw": lambda settings, records: {"figure2and3": new_figure(), "What it is": new_figure()},
        "comparisons": lambda settings, records: [Comparison("mean", (1.0, 1.0), 1.0)],
    }
    return by_seed(functions, "toy", "A toy.", "nothing", grows=("n", "widths"), paper={"n": 1000})


def test_a_cell_for_each_seed_and_captions_of_figures():
    results = experiment().run(Settings(seeds=3), seed=5)
    assert [one.value for one in results.values.values()] == [5, 6, 7]
    report = experiment().report(results)
    assert [part.caption for part in report.sections[0].parts] == ["Figure 2 and 3 of the paper", "What it is"]
    assert report.introduction == "Two lines." and report.claims[0].holds and report.claims[0].found == "6.000 ± 0.816"


@pytest.mark.parametrize(
    ("settings", "number", "sentence"),
    [
        (Settings(), Verdict.SMALLER, Verdict.HOLDS),  # sentences from the default size on, numbers from the paper's on
        (Settings(scale=2.0, seeds=3), Verdict.SMALLER, Verdict.HOLDS),
        (Settings(n=1000), Verdict.INSIDE, Verdict.HOLDS),
        (Settings(n=5000, widths=(16,)), Verdict.INSIDE, Verdict.HOLDS),
        (Settings(n=9), Verdict.SMALLER, Verdict.SMALLER),
        (Settings(n=1000, widths=(4, 4)), Verdict.SMALLER, Verdict.SMALLER),
    ],
)
def test_runs_at_the_papers_size_or_above_get_verdicts(settings, number, sentence):
    report = experiment().report(experiment().run(settings))
    assert report.comparisons[0].verdict is number and report.claims[0].verdict is sentence
    for row in (report.comparisons[0], report.claims[0]):
        assert row.size == size_text(settings, ("n", "widths")) and row.paper_size == "n = 1,000, widths = 8"


def test_a_run_is_as_large_as_another_in_what_is_named():
    assert reaches(Settings(n=11, scale=0.0), Settings(), ("n",)) and not reaches(Settings(n=9), Settings(), ("n",))
    assert reaches(Settings(widths=(9,)), Settings(), ("widths",))
    assert mean_and_spread([1.0, float("nan"), 3.0]) == "2.000 ± 1.000" and mean_and_spread([float("nan")]) == "nan"
    assert mean_and_spread([2.0]) == "2.000"


def test_positive_beyond_two_standard_errors():
    assert is_positive([1.0, 1.2, 0.8]) and is_positive([2.0]) is None
    assert is_positive([0.0, 2.0]) is False and is_positive([-1.0, -1.2]) is False  # the first: 1 with an error of 1
