from __future__ import annotations

import json
from dataclasses import replace

import pytest
from studies.tests.image_files import write_images

import ntkit
from ntkit_studies import random_features_cifar as experiment
from ntkit_studies._by_width import WidthCell
from ntkit_studies._images import load_images
from ntkit_studies._networks import conv_network
from ntkit_studies.skeleton import Data, Results, Verdict


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


def test_a_gap_that_the_paper_has_is_a_claim_at_every_size():
    settings = experiment.sizes("default", True)
    exact = {WidthCell(name, 0, 0): experiment.Accuracy(0.785) for name in experiment.NETWORKS}
    lower = {"CNTK-V": 0.74, "CNTK-GAP": 0.786}
    finite = {
        WidthCell(name, width, draw): experiment.Accuracy(share + 0.002 * draw)
        for name, share in lower.items()
        for width in settings.widths
        for draw in range(settings.draws)
    }
    manifest = experiment.run(experiment.QUICK).manifest
    data = Data("cifar.npz", "0", False)
    found = experiment.report(Results(settings, 0, data, {**exact, **finite}, manifest))
    assert {one.verdict for one in found.comparisons} == {Verdict.SMALLER}
    vanilla, pooled = found.claims  # 4.1 points, of the paper's 5.0; and less than nothing, of 41.6
    assert vanilla.verdict is Verdict.HOLDS and vanilla.found.startswith("4.1 ±")
    assert pooled.verdict is Verdict.FAILS and "(41.6)" in pooled.paper
    tiny = Results(replace(settings, train=20), 0, data, {**exact, **finite}, manifest)
    assert {one.verdict for one in experiment.report(tiny).claims} == {Verdict.SMALLER}
    other = Results(replace(settings, classes=(2, 3)), 0, data, {**exact, **finite}, manifest)
    assert not experiment.report(other).comparisons and not experiment.report(other).claims


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


def test_exact_kernels_alone(tmp_path):
    alone = replace(experiment.QUICK, widths=(), networks=("CNTK-V",))
    found = experiment.run(
        alone, data=write_images(tmp_path / "a.npz", classes=10, n=20, side=4), folder=tmp_path / "r"
    )
    assert list(found.values) == [WidthCell("CNTK-V", 0, 0)]
    page = experiment.report(found)
    assert len(page.sections[0].parts) == 1 and not page.claims
    with pytest.raises(ntkit.errors.InputError, match="networks must be some of"):
        replace(experiment.QUICK, networks=("CNTK",))
