"""Recursive feature machines as an experiment: its numbers are those of the estimators, and verdicts follow by rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ntkit
from ntkit_studies.feature_learning import rfm_tasks as experiment
from ntkit_studies.feature_learning._rfm_records import Accuracies, Course, Fit, TableCell
from ntkit_studies.feature_learning._rfm_report import TABLES, claims, comparisons
from ntkit_studies.skeleton import Verdict

SETTINGS = replace(experiment.sizes("quick", False), seeds=1)


@pytest.fixture(scope="module")
def found():
    return experiment.EXPERIMENT.run(SETTINGS).values


def drawn(task: str):
    if task == "low rank":
        return experiment.draw_low_rank(SETTINGS.low_rank_n, SETTINGS.low_rank_d, SETTINGS.low_rank_n, 0)
    product = task == "product"
    n, d = (SETTINGS.n, SETTINGS.d) if product else (SETTINGS.ntk_n, SETTINGS.ntk_d)
    return experiment.draw_product(n, d, SETTINGS.test, 0)


def test_targets_depend_on_few_inputs():
    task = experiment.draw_low_rank(50, 7, 20, 3)
    assert task.x.shape == (50, 7) and task.x_test.shape == (20, 7)
    np.testing.assert_array_equal(task.y, np.where(task.x[:, 5] > 0, task.x[:, 0] * task.x[:, 1], 0))
    assert 0.4 < task.x.std() < 0.6
    task = experiment.draw_product(50, 3, 20, 3)
    np.testing.assert_array_equal(task.y_test, task.x_test[:, 0] * task.x_test[:, 1])


@pytest.mark.parametrize(
    ("task", "kernel", "power", "options"),
    [
        ("product", "laplace", 1.0, {"bandwidth": 10.0}),
        ("product", "gaussian", 1.0, {"bandwidth": 10.0}),
        ("low rank", "laplace", 0.5, {"bandwidth": 10.0, "scale": None}),
        ("tangent kernel", "ntk", 1.0, {"b_std": 0.1}),
    ],
)
def test_fixed_settings_are_those_of_the_regressor(found, task, kernel, power, options):
    course, data = found[Fit(task, kernel, power, 0)], drawn(task)
    own = experiment.network(SETTINGS.ntk_d) if kernel == "ntk" else kernel
    for updates in range(len(course.errors)):
        settings = {"iterations": updates, "ridge": 1e-3, "power": power, "diagonal": False}
        model = ntkit.RFMRegressor(kernel=own, **settings, **options).fit(data.x, data.y)
        assert course.scores[updates] == pytest.approx(model.score(data.x_test, data.y_test), abs=1e-9)
    diagonal = np.diag(model.metric_)
    np.testing.assert_allclose(course.diagonal, diagonal / diagonal.max(), rtol=1e-9)


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
def test_chosen_settings_are_those_of_the_default_regressor(found, kernel):
    course, data = found[Fit("product", kernel, None, 0)], drawn("product")
    model = ntkit.RFMRegressor(kernel=kernel).fit(data.x, data.y)
    assert course.score == pytest.approx(model.score(data.x_test, data.y_test), abs=1e-9)
    assert course.used == model.n_iter_ and f"power {model.power_:g}, " in course.chosen


def test_without_a_file_tables_are_left_out(found):
    assert not any(isinstance(cell, TableCell) for cell in found)
    last = claims(found, False)[-1]
    assert last.found == "left out: no file of tables was given (--data FILE)" and last.holds is None


def test_program_with_a_file_of_tables(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    rng = np.random.default_rng(0)
    x, index = rng.normal(size=(40, 3)), rng.permutation(40)
    y = (x[:, 0] > 0).astype(int)
    arrays = {"X": x, "y": y, "split0": index[:20], "split1": index[20:], "kfold0": index[:30], "kfold1": index[30:]}
    np.savez(tmp_path / "tables.npz", **{f"{TABLES[0]}/{name}": array for name, array in arrays.items()})
    sizes = ["--n", "12", "--low-rank-n", "12", "--ntk-n", "10", "--test", "10", "--updates", "1"]
    options = [
        "--quick",
        "--seeds",
        "1",
        *sizes,
        "--output",
        str(tmp_path / "out"),
        "--data",
        str(tmp_path / "tables.npz"),
    ]
    assert experiment.EXPERIMENT.main(options) == 0
    text = capsys.readouterr().out
    assert "(1 tables)" in text and text.count("smaller than the paper's") == 2
    assert (tmp_path / "out/report.html").read_text(encoding="utf-8").count("<img alt=") == 2
    results = experiment.EXPERIMENT.read(tmp_path / "out")
    accuracy = results.values[TableCell(TABLES[0])]
    model = ntkit.RFMClassifier().fit(x[index[:30]], y[index[:30]])
    assert accuracy.rfm == (model.score(x[index[30:]], y[index[30:]]),) and len(accuracy.ntk) == 1
    with pytest.raises(SystemExit):
        experiment.EXPERIMENT.main([*options, "--tables", "iris"])
    assert "--tables must name tables of" in capsys.readouterr().err


def course(error: float) -> Course:
    return Course((1.0, error), 1.0, (1.0, 0.9, 0.1, 0.1, 0.1, 0.8), 1, "")


def test_verdicts_follow_from_the_numbers():
    values = {Fit(*cell, seed): course(0.12) for cell in experiment._FITS for seed in range(3)}
    for seed in range(3):
        values[Fit("low rank", "laplace", 1.0, seed)] = course(0.0019 + 0.0001 * seed)
        values[Fit("product", "gaussian", None, seed)] = course(0.05)
    values |= {TableCell(name): Accuracies((0.9, 0.86), (0.8, 0.8)) for name in TABLES}
    said = {one.what: one.holds for one in claims(values, True)}
    assert list(said.values()) == [False, None, None, None, None, None, True, True]
    assert [comparisons(values, at)[0].verdict for at in (True, False)] == [Verdict.INSIDE, Verdict.SMALLER]
    assert {one.holds for one in claims(values, False)} == {None}
    values[Fit("low rank", "laplace", 1.0, 0)] = replace(course(0.002), diagonal=(1.0, 0.9, 0.9, 0.1, 0.1, 0.8))
    values.pop(TableCell(TABLES[0]))
    features, accuracy = claims(values, True)[-2:]
    assert features.holds is False and features.found == "in 23 of 24 machines" and accuracy.holds is None
