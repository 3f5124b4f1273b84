from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from ntkit.datasets import load_uci
from ntkit.errors import InputError
from ntkit.experiments import _uci_methods, uci
from ntkit.experiments._uci_methods import METHODS, Grids, Outcome, evaluate, relu_gram
from ntkit.experiments._uci_scores import scores
from ntkit.experiments._uci_store import Record, ResultFile, fingerprint


@pytest.fixture(scope="module")
def iris():
    return next(table for table in load_uci() if table.name == "iris")


@pytest.fixture(scope="module")
def result(iris):
    return uci.run([iris], grids=uci.QUICK)


def arora_gram(X, depth, fixed):
    """The recursion of Arora et al. 2019c in NumPy: c_sigma = 1, inputs undivided, the first layers not trained."""
    sigma = X @ X.T
    theta = np.zeros_like(sigma)
    for layer in range(depth):
        if layer >= fixed:
            theta = theta + sigma
        if layer < depth - 1:
            norm = np.sqrt(np.outer(np.diag(sigma), np.diag(sigma)))
            angle = np.arccos(np.clip(sigma / norm, -1, 1))
            theta = theta * (np.pi - angle) / (2 * np.pi)
            sigma = norm * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    return theta


@pytest.mark.parametrize(("depth", "fixed"), [(depth, fixed) for depth in range(1, 6) for fixed in range(depth)])
def test_gram_is_that_of_the_paper(iris, depth, fixed):
    X = iris.X[::7]
    np.testing.assert_allclose(relu_gram(X, depth, fixed), arora_gram(X, depth, fixed), rtol=1e-7, atol=1e-9)


def test_building_networks_leaves_the_global_generator_alone(iris):
    before = torch.get_rng_state()
    relu_gram(iris.X[:5], 3, 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_choice_is_made_on_validation_points_and_the_first_of_ties_wins(iris):
    seen = []

    def predictor(right):
        def predict(train, test):
            seen.append((len(train), len(test)))
            return np.where(np.arange(len(test)) < right, iris.y[test], -1)

        return predict

    candidates = [({"C": float(number)}, predictor(right)) for number, right in enumerate([3, 9, 9, 4])]
    outcome = evaluate(candidates, iris)
    assert outcome.choice == {"C": 1.0}
    assert outcome.validation == 9 / len(iris.validation)
    assert outcome.test == tuple(9 / len(test) for _, test in iris.folds)
    assert seen[:4] == [(len(iris.train), len(iris.validation))] * 4
    assert seen[4:] == [(len(train), len(test)) for train, test in iris.folds]


def test_test_labels_decide_nothing(iris):
    """Other labels on points that the choice does not see change the accuracy, never the choice."""
    kept = np.union1d(iris.train[:40], iris.validation[:40])
    hidden = np.setdiff1d(np.arange(len(iris)), kept)
    table = replace(iris, train=iris.train[:40], validation=iris.validation[:40])
    y = iris.y.copy()
    y[hidden] = (y[hidden] + 1) % 3
    for method in METHODS:
        outcomes = [evaluate(METHODS[method](t, uci.QUICK, 0), t) for t in (table, replace(table, y=y))]
        assert outcomes[0].choice == outcomes[1].choice
        assert outcomes[0].validation == outcomes[1].validation


def test_rbf_machine_is_that_of_scikit_learn(iris):
    grids = uci.QUICK
    best = None
    gammas = [multiple / 4 for multiple in grids.gammas]
    for gamma in gammas:
        for choice in ParameterGrid({"gamma": [gamma], "C": list(grids.costs)}):
            model = SVC(**choice).fit(iris.X[iris.train], iris.y[iris.train])
            accuracy = model.score(iris.X[iris.validation], iris.y[iris.validation])
            if best is None or accuracy > best[0]:
                best = accuracy, choice
    outcome = evaluate(METHODS["RBF SVM"](iris, grids, 0), iris)
    assert (outcome.validation, outcome.choice) == best
    expected = [
        SVC(**best[1]).fit(iris.X[train], iris.y[train]).score(iris.X[test], iris.y[test]) for train, test in iris.folds
    ]
    np.testing.assert_allclose(outcome.test, expected)


def test_every_network_is_tried_and_nngp_trains_the_last_layer_alone(iris):
    tried = [(choice["depth"], choice["fixed"]) for choice, _ in METHODS["NTK SVM"](iris, Grids(costs=(1.0,)), 0)]
    assert tried == [(depth, fixed) for depth in range(1, 6) for fixed in range(depth)]
    tried = [(choice["depth"], choice["fixed"]) for choice, _ in METHODS["NNGP ridge"](iris, Grids(ridges=(1.0,)), 0)]
    assert tried == [(depth, depth - 1) for depth in range(1, 6)]
    assert len(Grids().gammas) == 15  # as many as there are networks


@pytest.mark.parametrize("predict", [_uci_methods._predict_svm, _uci_methods._predict_ridge])
def test_one_class_to_train_on_is_predicted(iris, predict):
    train = np.flatnonzero(iris.y == 2)[:6]
    np.testing.assert_array_equal(predict(relu_gram(iris.X, 2, 0), iris.y, 1.0, train, np.arange(4)), [2] * 4)


def test_scores_against_their_definitions():
    generator = np.random.default_rng(0)
    values = generator.integers(0, 11, (4, 30)) / 10
    values[:, 0] = 0  # where nobody gets anything right everybody reaches the best
    found = scores({str(row): list(values[row]) for row in range(4)})
    for row in range(4):
        score, ratios = found[str(row)], []
        for column in range(30):
            best = max(values[:, column])
            ratios.append(values[row, column] / best if best else 1.0)
        assert score.accuracy == pytest.approx(values[row].mean())
        assert score.deviation == pytest.approx(values[row].std())
        assert score.rank == pytest.approx(np.mean([rankdata(-values[:, c])[row] for c in range(30)]))
        assert score.p90 == pytest.approx(np.mean([round(ratio, 9) >= 0.90 for ratio in ratios]))
        assert score.p95 == pytest.approx(np.mean([round(ratio, 9) >= 0.95 for ratio in ratios]))
        assert score.pma == pytest.approx(np.mean(ratios))
    assert sum(score.rank for score in found.values()) == pytest.approx(10)


@pytest.mark.parametrize("accuracy", [{}, {"a": []}, {"a": [1.0], "b": [1.0, 0.0]}, {"a": [np.nan]}, {"a": [81.9]}])
def test_scores_of_what_are_no_accuracies(accuracy):
    with pytest.raises(InputError, match=r"accurac"):
        scores(accuracy)


def record(data="iris", method="NTK SVM", key="k", accuracy=0.5):
    return Record(data, method, key, Outcome({"C": 1.0}, accuracy, (accuracy, 1.0)), 0.25)


def test_records_come_back(tmp_path):
    path = tmp_path / "results.jsonl"
    file = ResultFile(path)
    file.add(record())
    file.add(record(method="RBF SVM"))
    file.add(record(accuracy=0.75))
    again = ResultFile(path)
    assert again.get("iris", "NTK SVM", "k") == record(accuracy=0.75)  # the last of two
    assert again.get("iris", "RBF SVM", "k") == record(method="RBF SVM")
    assert again.get("iris", "RBF SVM", "other data") is None
    assert again.unreadable == 0


@pytest.mark.parametrize("length", [1, 20, 60])
def test_a_line_cut_off_is_left_aside(tmp_path, length):
    path = tmp_path / "results.jsonl"
    ResultFile(path).add(record())
    with path.open("a") as file:
        file.write(record(method="RBF SVM").line()[:length])
    again = ResultFile(path)
    assert again.unreadable == 1
    assert again.get("iris", "NTK SVM", "k") == record()
    again.add(record(method="RBF SVM"))
    final = ResultFile(path)
    assert final.get("iris", "RBF SVM", "k") == record(method="RBF SVM")
    assert final.unreadable == 1


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[1]",
        "{not json",
        '{"data": 1, "method": "a", "key": "b", "outcome": {"choice": {}, "validation": 1, "test": [1]}, "seconds": 1}',
        '{"data": "d", "method": "a", "key": "b", "outcome": {"choice": {}, "validation": 1, "test": [7]}, "seconds": 1}',
        '{"data": "d", "method": "a", "key": "b", "outcome": {"choice": {}, "validation": 1, "test": []}, "seconds": 1}',
        '{"data": "d", "method": "a", "key": "b", "outcome": {"choice": 1, "validation": 1, "test": [1]}, "seconds": 1}',
        "\x00\x00\x00",
    ],
)
def test_a_damaged_line_between_others_is_left_aside(tmp_path, line):
    path = tmp_path / "results.jsonl"
    path.write_text(record().line() + line + "\n" + record(method="RBF SVM").line())
    file = ResultFile(path)
    assert file.unreadable == 1
    assert file.get("iris", "NTK SVM", "k") and file.get("iris", "RBF SVM", "k")


def test_another_file_is_not_written_to(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("# Notes\n")
    with pytest.raises(InputError, match=r"no results of this study"):
        ResultFile(path)
    assert path.read_text() == "# Notes\n"


def test_fingerprint_follows_everything_that_matters(iris):
    grids = Grids()
    changed = [
        fingerprint(iris, grids, 1),
        fingerprint(iris, replace(grids, trees=10), 0),
        fingerprint(replace(iris, X=iris.X + 1e-9), grids, 0),
        fingerprint(replace(iris, y=iris.y + 1), grids, 0),
        fingerprint(replace(iris, train=iris.train[1:]), grids, 0),
        fingerprint(replace(iris, folds=iris.folds[:3]), grids, 0),
        fingerprint(replace(iris, name="other"), grids, 0),
    ]
    assert len({fingerprint(iris, grids, 0), *changed}) == 8
    assert fingerprint(replace(iris, X=np.asfortranarray(iris.X)), grids, 0) == fingerprint(iris, grids, 0)


def test_every_method_learns(result):
    assert result.methods == tuple(METHODS)
    assert all(score.accuracy > 0.85 for score in result.scores().values())


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path, iris, result, monkeypatch):
    path, done = tmp_path / "results.jsonl", []

    def stop(what, count, there_are):
        done.append((count, there_are))
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uci.run([iris], store=path, grids=uci.QUICK, workers=1, progress=stop)
    assert path.read_text().count("\n") == 2
    computed = []
    monkeypatch.setattr(uci, "evaluate", lambda *arguments: computed.append(1) or evaluate(*arguments))
    again = uci.run([iris], store=path, grids=uci.QUICK, workers=2)
    assert len(computed) == len(METHODS) - 2
    assert {place: r.outcome for place, r in again.records.items()} == {
        place: r.outcome for place, r in result.records.items()
    }
    computed.clear()
    uci.run([iris], store=path, grids=uci.QUICK)
    assert not computed
    uci.run([iris], ["RBF SVM"], store=path, grids=replace(uci.QUICK, costs=(1.0,)))
    assert len(computed) == 1  # other grids are another study


def test_an_error_names_its_place_and_keeps_the_rest(tmp_path, iris, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("broken")

    monkeypatch.setitem(METHODS, "random forest", broken)
    with pytest.raises(RuntimeError) as error:
        uci.run([iris], ["RBF SVM", "random forest"], tmp_path / "results.jsonl", uci.QUICK, workers=1)
    assert error.value.__notes__ == ["in random forest on iris"]
    assert (tmp_path / "results.jsonl").read_text().count("\n") == 1


def test_program_writes_its_reports(tmp_path, capsys):
    arguments = ["--quick", "--only", "iris", "wine", "--output", str(tmp_path / "out"), "--workers", "2"]
    assert uci.main(arguments) == 0
    output = capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    for name in METHODS:
        assert name in output and name in page and f"| {name} |" in table
        assert 0.8 < summary["scores"][name]["accuracy"] <= 1
    assert set(summary["accuracy"]) == {"iris", "wine"}
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    lines = (tmp_path / "out" / "results.jsonl").read_text()
    assert uci.main(arguments) == 0
    assert (tmp_path / "out" / "results.jsonl").read_text() == lines


def test_program_says_that_it_was_stopped(tmp_path, capsys, monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(uci, "run", stopped)
    (tmp_path / "results.jsonl").write_text('{"data": "ir')
    assert uci.main(["--quick", "--output", str(tmp_path)]) == 130
    errors = capsys.readouterr().err
    assert "goes on with what is left" in errors
    assert "1 unreadable lines" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "--seed must be between 0 and"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--data", "missing.npz"], "NAME/split0 and NAME/split1"),
        (["--only", "adult"], "--only must name data sets of the file: breast-cancer, digits, iris, wine"),
        (["--methods", "ntk"], "methods must be some of 'NTK SVM'"),
    ],
)
def test_bad_arguments_are_explained(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(uci, "run", lambda *_: pytest.fail("the computation started"))
    monkeypatch.setenv("COLUMNS", "1000")
    with pytest.raises(SystemExit) as end:
        uci.main([*arguments, "--output", str(tmp_path)])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_output_that_is_a_file(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        uci.main(["--quick", "--output", str(tmp_path / "file")])
    assert "File exists" in capsys.readouterr().err


def test_missing_extra_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit):
        uci.main(["--quick", "--output", str(tmp_path)])
    assert "pip install 'ntkit[plot,cli]'" in capsys.readouterr().err


@pytest.mark.parametrize("tables", [[], "twice"])
def test_tables_must_have_names_of_their_own(iris, tables):
    with pytest.raises(InputError, match=r"different names"):
        uci.run([iris, iris] if tables == "twice" else tables)
