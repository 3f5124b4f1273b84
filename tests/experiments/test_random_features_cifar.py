from __future__ import annotations

import json

import pytest
from tests.experiments.image_files import write_images

import ntkit
from ntkit._src.experiments import random_features_cifar as experiment
from ntkit._src.experiments._by_width import WidthCell
from ntkit._src.experiments._images import load_images
from ntkit._src.experiments._networks import conv_network


def test_digits_by_default_and_the_same_bits_again():
    first, again = (experiment.run(experiment.QUICK, seed=1).values for _ in range(2))
    assert first == again and len(first) == 10
    assert all(0 <= found.accuracy <= 1 for found in first.values())
    assert min(first[WidthCell(name, 0, 0)].accuracy for name in experiment.NETWORKS) > 0.5


def test_exact_accuracy_is_that_of_the_classifier():
    quick = experiment.QUICK
    data = load_images(quick.train, quick.test, 0, None, quick.classes)
    values = experiment.run(quick, seed=0).values
    for name in experiment.NETWORKS:
        net = conv_network(quick.depth, 5, name == "CNTK-GAP", 1, 8)
        model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(data.x.flatten(1).numpy(), data.y)
        assert model.score(data.x_test.flatten(1).numpy(), data.y_test) == values[WidthCell(name, 0, 0)].accuracy


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder, data = tmp_path / "result", write_images(tmp_path / "a.npz", classes=3, n=12, side=4)
    options = ["--quick", "--data", str(data), "--widths", "2", "128", "--train", "8", "--test", "8"]
    assert experiment.main([*options, "--output", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "CNTK-GAP, depth 3, exact" in output and "71.05" in output and "51.1" in output
    assert "data:image/png" in (folder / "report.html").read_text(encoding="utf-8")
    assert json.loads((folder / "results.json").read_text())["settings"]["classes"] == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--widths", "0"], "widths must be at least 1"),
        (["--classes", "1", "1"], "two different"),
        (["--train", "7"], "multiple"),
        (["--train", "9000"], "at most"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        experiment.main(["--quick", *options])
    assert message in capsys.readouterr().err
