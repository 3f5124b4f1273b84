from __future__ import annotations

import json

import numpy as np
import pytest
from tests.experiments.image_files import write_images

import ntkit
from ntkit.experiments import random_features_cifar as experiment
from ntkit.experiments._images import load_images


def test_digits_by_default_and_the_same_bits_again(tmp_path):
    path = tmp_path / "a.json"
    first = experiment.run(experiment.QUICK, seed=1, path=path)
    content = json.loads(path.read_text())
    content["cells"].popitem()
    path.write_text(json.dumps(content))
    again = experiment.run(experiment.QUICK, seed=1, path=path)
    for name, values in first.accuracy.items():
        assert values.shape == (2, 2) and ((values >= 0) & (values <= 1)).all()
        np.testing.assert_array_equal(values, again.accuracy[name])
    assert first.exact == again.exact and min(first.exact.values()) > 0.5


def test_exact_accuracy_is_that_of_the_classifier():
    quick = experiment.QUICK
    data = load_images(quick.train, quick.test, 0, None, quick.classes)
    result = experiment.run(experiment.QUICK, seed=0)
    for name, net in experiment.networks(experiment.QUICK, 5, 1, 8).items():
        model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(data.x.flatten(1).numpy(), data.y)
        assert model.score(data.x_test.flatten(1).numpy(), data.y_test) == result.exact[name]


def test_average_network_has_its_ends_fixed():
    nets = experiment.networks(experiment.Settings(), 4, 3, 8)
    assert [p.requires_grad for p in nets["CNTK-GAP"].parameters()] == [False, True, True, False]
    assert all(p.requires_grad for p in nets["CNTK-V"].parameters())


def test_program(tmp_path, capsys):
    path, data = tmp_path / "result.json", write_images(tmp_path / "a.npz", classes=3, n=12, side=4)
    options = [
        "--quick",
        "--data",
        str(data),
        "--widths",
        "2",
        "3",
        "--train",
        "8",
        "--test",
        "8",
        "--output",
        str(path),
    ]
    assert experiment.main(options) == 0
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "CNTK-GAP" in capsys.readouterr().out
    assert json.loads(path.read_text())["settings"]["classes"] == [0, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--widths", "0"], "widths must be positive"),
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
