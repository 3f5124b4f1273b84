from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.experiments.image_files import write_images
from torch import nn

import ntkit
from ntkit.datasets import balanced_split
from ntkit.errors import InputError
from ntkit.experiments import _label_aware_report as report
from ntkit.experiments import label_aware_cifar as experiment
from ntkit.experiments._images import load_images
from ntkit.experiments._label_aware_scores import METHODS, Scores

PAIR = replace(experiment.QUICK, tasks=experiment.QUICK.tasks[:1])


def scores(base, test, validation, error):
    tables = ({name: np.array(one[name]) for name in METHODS} for one in (test, validation, error))
    zero = {name: np.zeros_like(np.array(test[name])) for name in METHODS}
    return Scores((0.1, 1.0), np.array(base), *tables, zero)


def test_network_is_that_of_the_paper():
    net = experiment.network(3, 32)
    convolutions = [layer for layer in net if isinstance(layer, nn.Conv2d)]
    assert [layer.stride[0] for layer in convolutions] == [1, 1, 1, 2, 1, 1, 2]
    assert sum(isinstance(layer, nn.ReLU) for layer in net) == 7 and net[-1].in_features == 64
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 1)
    assert experiment.network(1, 9)(torch.zeros(1, 1, 9, 9)).shape == (1, 1)


@pytest.mark.parametrize("classes", [(3, 8), None], ids=["pair", "all"])
def test_scores_are_those_of_the_classifiers(classes):
    # Every number again from float64 images, without a stored Gram matrix.
    task = experiment.Task("task", classes, 60, 40, 2)
    settings = experiment.Settings((task,), (0.01, 0.5), 3)
    result = experiment.run(settings, seed=4)["task"]
    found = load_images(60, 40, 4, None, classes)
    x = torch.cat([found.x, found.x_test]).double()
    y = torch.from_numpy(np.concatenate([found.y, found.y_test]))
    net = experiment.network(1, 8)
    base = ntkit.infinite_width(net).ntk
    for draw in range(2):
        rows, others = balanced_split(y, [60, 40], 4 + draw)
        assert not set(rows.tolist()) & set(others.tolist())

        def accuracy(model, rows=rows, others=others):
            model.fit(x[rows].flatten(1).numpy(), y[rows].numpy())
            return model.score(x[others].flatten(1).numpy(), y[others].numpy())

        assert result.base[draw] == accuracy(ntkit.NTKClassifier(net, input_shape=(1, 8, 8)))
        for name in METHODS:
            generator = torch.Generator().manual_seed(4 + draw)
            aware = ntkit.LabelAware(base, name, (0.01, 0.5), validation=3, generator=generator).fit(x[rows], y[rows])
            np.testing.assert_array_equal(result.validation[name][draw], aware.search.accuracies)
            np.testing.assert_allclose(result.error[name][draw], aware.search.errors, rtol=1e-3)
            assert settings.strengths[result.chosen(name)[draw]] == aware.strength
            for number, strength in enumerate(settings.strengths):
                model = ntkit.LabelAwareClassifier(net, input_shape=(1, 8, 8), pairs=name, strength=strength)
                assert result.test[name][draw, number] == accuracy(model)
                assert (result.shift[name][draw, number] > 0) == (model.shift_ > 0)


def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path):
    first = experiment.run(PAIR, seed=1, folder=tmp_path)["3 vs 8"]
    path = tmp_path / "3-vs-8.json"
    content = json.loads(path.read_text())
    content["cells"] = dict(list(content["cells"].items())[:21])
    path.write_text(json.dumps(content))
    again = experiment.run(PAIR, seed=1, folder=tmp_path)["3 vs 8"]
    more = experiment.run(
        replace(PAIR, tasks=(replace(PAIR.tasks[0], draws=3),)), seed=1, folder=tmp_path
    )["3 vs 8"]  # fmt: skip
    assert more.base.shape == (3,)
    for name in METHODS:
        for kind in ("test", "validation", "error", "shift"):
            table = getattr(first, kind)[name]
            assert table.shape == (2, 2)
            np.testing.assert_array_equal(table, getattr(again, kind)[name])
            np.testing.assert_array_equal(table, getattr(more, kind)[name][:2])
    with pytest.raises(InputError, match="other settings"):
        experiment.run(replace(PAIR, validation=0.5), seed=1, folder=tmp_path)
    with pytest.raises(InputError, match="kernel of other data"):
        experiment.run(PAIR, seed=2, folder=tmp_path)


def test_what_is_known_is_not_computed_again(tmp_path, monkeypatch):
    first = experiment.run(PAIR, folder=tmp_path)["3 vs 8"]
    monkeypatch.setattr("ntkit.experiments._label_aware_scores.LabelAware", None)
    np.testing.assert_array_equal(experiment.run(PAIR, folder=tmp_path)["3 vs 8"].base, first.base)


def test_validation_decides_and_test_images_do_not():
    test = {"kr-v1": [[0.1, 0.9], [0.2, 0.8]], "kr-v2": [[0.3, 0.95], [0.4, 0.7]]}
    validation = {"kr-v1": [[0.6, 0.5], [0.5, 0.5]], "kr-v2": [[0.6, 0.1], [0.2, 0.1]]}
    error = {"kr-v1": [[2.0, 1.0], [2.0, 1.0]], "kr-v2": [[1.0, 1.0], [1.0, 1.0]]}
    for one, value in ((test, 0.0), (validation, 0.0), (error, 0.0)):
        one |= {"fjlt-v1": [[value] * 2] * 2, "fjlt-v2": [[value] * 2] * 2}
    found = scores([0.5, 0.5], test, validation, error)
    # The higher accuracy in the first draw although its error is larger; of equal ones the smaller error in the second.
    assert found.chosen("kr-v1").tolist() == [0, 1]
    assert found.by_validation("kr-v1").tolist() == [0.1, 0.8]
    assert found.by_validation(*METHODS).tolist() == [0.3, 0.8]
    assert found.best_method_on_test().tolist() == [0.3, 0.8]
    assert found.best_on_test().tolist() == [0.95, 0.8]


def test_papers_averages():
    table_1 = np.array(list(report.PAPER.values())[:5]).mean(0)
    np.testing.assert_allclose(table_1, [85.91, 86.95, 86.41, 86.40, 86.70, 86.64], atol=0.011)
    assert table_1[1] - table_1[0] == pytest.approx(1.04, abs=0.011)
    for values in report.PAPER.values():
        assert values[1] == max(values[2:])


def test_tables():
    same = {name: [[0.5, 0.5], [0.5, 0.5]] for name in METHODS}
    test = same | {"kr-v1": [[0.52, 0.4], [0.56, 0.4]]}
    better = same | {"kr-v1": [[0.9, 0.5], [0.9, 0.5]]}
    first = scores([0.5, 0.5], test, better, same)
    results = {"deer vs dog": first, "cat vs deer": scores([0.4, 0.5], same, same, same)}
    rows = {row[0]: row[1:] for row in report.table(results, True).rows}
    assert rows["CNTK"] == ["50.00 (85.15)", "45.00 (83.55)", "47.50 (84.35)"]
    assert rows["KR-V1"][0] == rows["best by validation"][0].replace("86.75", "85.65") == "54.00 (85.65)"
    gains = {row[0]: row[1:] for row in report.differences_table(results, True).rows}
    # Draws gain (2, 6) in the first task and (10, 0) in the second: (6, 3) on average.
    assert gains["KR-V1"][:2] == ["+4.00 +- 2.00 (+0.50)", "+5.00 +- 5.00 (+0.35)"]
    assert gains["FJLT-V1"] == ["+0.00 +- 0.00 (+1.60)", "+5.00 +- 5.00 (+1.30)", "+2.50 +- 2.50 (+1.45)"]
    plain = {row[0]: row[1:] for row in report.differences_table(results, False).rows}
    assert plain["KR-V1"][2] == "+4.50 +- 1.50"
    single = scores([0.5], *({m: v[:1] for m, v in one.items()} for one in (test, better, same)))
    assert report.differences_table({"a": single}, True).rows[0][1:] == ["+2.00", "+2.00"]
    uneven = report.differences_table({"a": single, "b": results["cat vs deer"]}, False)
    assert uneven.rows[0][1:] == ["+2.00", "+5.00 +- 5.00", "+3.50"]
    strengths = report.strengths_table(results)
    assert list(strengths.header) == ["strength", "0.1", "1"]
    assert strengths.rows[0][1:] == ["+4.50 +- 1.50; 4; 0 %", "-2.50 +- 2.50; 0; 0 %"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--train", "12", "--test", "8"], ["deer vs dog", "cat vs deer", "(85.15)", "best by validation"]),
        (["--table", "2", "--train", "40", "50", "--test", "30", "--seeds", "2", "1"], ["40", "50", "FJLT-V2"]),
    ],
)
def test_program(options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder, data = tmp_path / "results", write_images(tmp_path / "a.npz", classes=10, n=10, side=8)
    common = ["--quick", "--data", str(data), "--output", str(folder), "--threads", str(torch.get_num_threads())]
    assert experiment.main([*common, *options]) == 0
    output = capsys.readouterr().out
    assert all(word in output for word in words)
    assert "Difference to CNTK" in output
    assert len(list(folder.glob("*.npy"))) == (1 if "--table" in options else 2)


def test_sizes_of_the_tables():
    first, second = (experiment.settings_of(which, images=True) for which in (1, 2))
    names = ["deer vs dog", "cat vs deer", "cat vs frog", "deer vs frog", "bird vs frog"]
    assert [task.name for task in first.tasks] == names
    assert [task.classes for task in first.tasks] == [(4, 5), (3, 4), (3, 6), (4, 6), (2, 6)]
    assert {(task.train, task.test, task.draws) for task in first.tasks} == {(2000, 400, 5)}
    assert [(task.train, task.test, task.classes) for task in second.tasks] == [(2000, 2000, None), (5000, 2000, None)]
    assert first.strengths == second.strengths == (0.001, 0.01, 0.1, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--train", "7"], "multiple"),
        (["--test", "0"], "multiple"),
        (["--validation", "0"], "between 0 and 1"),
        (["--train", "20", "40"], "Table 1 has one training size"),
        (["--seeds", "0"], "draws must be positive"),
        (["--table", "2", "--seeds", "1", "2", "3"], "one for each"),
        (["--validation", "2.5"], "a number of folds, or a share below 1"),
        (["--validation", "1"], "number of folds, an integer from 2 on"),
        (["--threads", "0"], "--threads must be positive"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        experiment.main(["--quick", *options])
    assert message in capsys.readouterr().err


def test_strengths_must_be_positive():
    with pytest.raises(InputError, match="strengths must be positive"):
        experiment.run(replace(PAIR, strengths=(0.0, 1.0)))
