from __future__ import annotations

from dataclasses import dataclass

from ntkit._src.experiments._by_seed import Seed, are_default, by_seed, is_positive, mean_and_spread
from ntkit._src.experiments.skeleton import Claim, Run
from ntkit._src.plots import new_figure


@dataclass(frozen=True)
class Settings:
    scale: float = 1.0
    seeds: int = 2


@dataclass(frozen=True)
class Number:
    value: float


def measure(run: Run[Settings], cell: Seed) -> Number:
    return Number(run.settings.scale * cell.seed)


def experiment():
    return by_seed(
        "toy", "A toy.", "nothing", "Two\n  lines.", lambda size, from_file: Settings(), measure,
        lambda settings, records: [Claim("all", "-", mean_and_spread([one.value for one in records]), True)],
        lambda settings, records: {"figure2and3": new_figure(), "What it is": new_figure()},
    )  # fmt: skip


def test_a_cell_for_each_seed_and_captions_of_figures():
    results = experiment().run(Settings(seeds=3), seed=5)
    assert [one.value for one in results.values.values()] == [5, 6, 7]
    report = experiment().report(results)
    assert [part.caption for part in report.sections[0].parts] == ["Figure 2 and 3 of the paper", "What it is"]
    assert report.introduction == "Two lines." and report.claims[0].holds and report.claims[0].found == "6.000 ± 0.816"


def test_only_default_settings_get_a_verdict():
    assert are_default(Settings(seeds=9), Settings()) and not are_default(Settings(scale=2.0), Settings())
    assert experiment().report(experiment().run(Settings(2.0))).claims[0].holds is None
    assert mean_and_spread([1.0, float("nan"), 3.0]) == "2.000 ± 1.000" and mean_and_spread([float("nan")]) == "nan"
    assert mean_and_spread([2.0]) == "2.000"


def test_positive_beyond_two_standard_errors():
    assert is_positive([1.0, 1.2, 0.8]) and is_positive([2.0]) is None
    assert is_positive([0.0, 2.0]) is False and is_positive([-1.0, -1.2]) is False  # the first: 1 with an error of 1
