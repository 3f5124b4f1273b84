from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import ntkit
from ntkit_studies import label_agnosticism as experiment
from ntkit_studies._images import load_images
from ntkit_studies.methods import relabel

SETTINGS = replace(experiment.QUICK, seeds=1)


@pytest.fixture(scope="module")
def found():
    (record,) = experiment.EXPERIMENT.run(SETTINGS, seed=3).values.values()
    return record


def data(source: str):
    if source == "images":
        images = load_images(SETTINGS.train, SETTINGS.test, 3, None, SETTINGS.classes)
        x, x_test = images.x.flatten(1).double(), images.x_test.flatten(1).double()
        return x, x_test, *(torch.from_numpy(2.0 * (one == 3) - 1) for one in (images.y, images.y_test))
    x = torch.randn(40, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y = x[:, 0].sign()
    return x[:20], x[20:], y[:20], y[20:]


@pytest.mark.parametrize("source", experiment.SOURCES)
def test_scores_are_those_of_the_relabelling(found, source):
    x, x_test, y, y_test = data(source)
    d = x.shape[1]
    linear = ntkit.infinite_width(nn.Linear(d, 1, bias=False)).ntk
    new = relabel(linear, x, y)
    gram, cross = x @ x.T / d, x_test @ x.T / d
    ridge = 1e-3 * gram.diagonal().mean() * torch.eye(len(x), dtype=x.dtype)
    for column, (labels, labels_test) in enumerate(((y, y_test), (new.labels(x), new.labels(x_test)))):
        predicted = cross @ torch.linalg.solve(gram + ridge, labels)
        expected = float(((predicted > 0) == (labels_test > 0)).double().mean())
        assert found.accuracy[f"linear, {source}"]["label-agnostic"][column] == expected
    if source == "Gaussian points":
        assert found.new == new.labels(x_test).tolist() and found.old == y_test.tolist()
    assert set(found.accuracy[f"NTK, {source}"]) == {
        "label-agnostic",
        "LANTK-KR-V1",
        "LANTK-FJLT-V1",
        "trained network",
    }


def test_trained_kernel_knows_its_labels():
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.where(x[:, 0] > 0, 1.0, -1.0).double()
    model = experiment.TrainedKernel(replace(SETTINGS, steps=30, rate=1e-2), 5)
    one, same, other = (model.fit(x, labels)(x) for labels in (y, y, -y))
    torch.testing.assert_close(one, same, rtol=0, atol=0)
    assert float((one - other).abs().max()) > 1e-3 * float(one.abs().max())


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    assert experiment.EXPERIMENT.main(["--quick", "--seeds", "1", "--output", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert (
        "linear, images: accuracy on the old and on the new labels" in text
        and "LANTK-FJLT-V1 beside NTK, Gauss" in text
    )
    assert (tmp_path / "report.html").read_text(encoding="utf-8").count("<img alt=") == 2


def test_verdicts_follow_from_the_accuracies():
    linear = {"label-agnostic": (0.95, 0.6), "LANTK-KR-V1": (0.95, 0.7)}
    ntk = {"label-agnostic": (0.95, 0.7), "LANTK-KR-V1": (0.95, 0.65)}
    record = experiment.Scores({"linear": linear, "NTK": ntk}, {"linear": (0.5, 0.5), "NTK": (0.5, 0.5)}, [], [], [])
    assert [one.holds for one in experiment.claims(SETTINGS, [record, record])] == [True, True, False, False]
    assert [one.holds for one in experiment.claims(SETTINGS, [record])] == [True, None, False, None]
