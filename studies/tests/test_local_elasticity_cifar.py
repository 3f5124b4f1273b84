from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from studies.tests.image_files import write_images
from torch import nn

import ntkit
from ntkit.errors import InputError
from ntkit_studies import local_elasticity_cifar as experiment
from ntkit_studies._images import load_images
from ntkit_studies.skeleton import Data, Results, Verdict


def ratios(settings, seed=0):
    return experiment.ratios_of(experiment.run(settings, seed))


def test_every_method_has_a_ratio_for_each_pair():
    found = ratios(experiment.QUICK, seed=1)
    assert set(found) == set(experiment.KINDS)
    for rows in found.values():
        assert list(rows) == [*experiment.METHODS, "LANTK 0.1"]
        assert all(len(values) == 2 and all(0 < value < 1.5 for value in values) for values in rows.values())
        assert rows["LANTK"] == rows["LANTK 0.1"]


def test_rows_are_the_kernels_they_are_named_for():
    settings = replace(experiment.QUICK, pairs=((3, 8),), steps=3, strength=0.2)
    found = ratios(settings, seed=2)
    data = load_images(settings.train, settings.test, 2, None, (3, 8))
    y, y_test = torch.from_numpy(data.y), torch.from_numpy(data.y_test)
    net = experiment.network(settings, 64, 2 + 7919)
    for method in ("NN-init", "NN-trained"):
        ntk = ntkit.empirical(net).ntk
        grams = ntk(data.x).detach(), ntk(data.x_test, data.x).detach()
        expected = [
            ntkit.local_elasticity(grams[0], y),
            ntkit.local_elasticity(grams[1], y_test, y, ntk.diag(data.x_test).detach(), ntk.diag(data.x).detach()),
        ]
        for kind, value in zip(experiment.KINDS, expected, strict=True):
            assert found[kind][method][0] == pytest.approx(float(value), rel=1e-4)
        schedule = ntkit.Schedule("adam", learning_rate=settings.rate, steps=3)
        ntkit.train(net, data.x, 2 * (y == 8).float()[:, None] - 1, schedule)
    x = data.x.flatten(1).double()
    plain = nn.Sequential(nn.Linear(64, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    base = ntkit.infinite_width(plain).ntk
    aware = ntkit.LabelAware(base, "kr-v1", 0.2).fit(x, y)
    for method, kernel in (("NTK", base), ("LANTK", aware)):
        value = ntkit.local_elasticity(kernel(x), y)
        assert found["train-train"][method][0] == pytest.approx(float(value), rel=1e-9)


def test_expected_kernel_is_the_limit_of_that_width_and_the_mean_of_networks():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = experiment.ExpectedTorchKernel(6, 100)
    exact = ntkit.infinite_width(nn.Sequential(nn.Linear(6, 100), nn.ReLU(), nn.Linear(100, 1)), init="torch").ntk
    torch.testing.assert_close(kernel(x), exact(x), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kernel.diag(x), exact(x).diagonal(), rtol=1e-10, atol=1e-10)
    grams = []
    for seed in range(60):
        net = nn.Sequential(nn.Linear(6, 100), nn.ReLU(), nn.Linear(100, 1)).double()
        ntkit.initialize(net, "torch", generator=torch.Generator().manual_seed(seed))
        grams.append(ntkit.empirical(net).ntk(x).detach())
    grams = torch.stack(grams)
    error = grams.std(0) / len(grams) ** 0.5
    # PyTorch's weights are uniform: beyond the variance they differ from the limit by 1 / inputs.
    assert float(((grams.mean(0) - kernel(x)).abs() / (4 * error + 0.03 * kernel(x).abs())).max()) < 1


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    folder, data = tmp_path / "result", write_images(tmp_path / "a.npz", classes=10, n=8, side=4)
    options = ["--quick", "--data", str(data), "--train", "8", "--test", "8", "--pool", "2", "--output", str(folder)]
    assert experiment.main([*options, "--parametrization", "ntk", "--strengths", "0.01", "0.1"]) == 0
    assert "data:image/png" in (folder / "report.html").read_text(encoding="utf-8")
    output = capsys.readouterr().out
    assert (
        "frog vs ship" in output
        and "58.37" in output
        and "LANTK 0.01" in output
        and "smaller than the paper's" in output
    )
    assert json.loads((folder / "results.json").read_text())["settings"]["pairs"] == [[6, 8], [6, 9]]


def test_a_rise_too_small_to_be_called_significant():
    settings = experiment.sizes("default", True)
    manifest = experiment.run(replace(experiment.QUICK, pairs=((3, 8),))).manifest
    both = {"NN-init": 0.55, "NN-trained": 0.6, "NTK": 0.6, "LANTK": 0.6003, "expected init": 0.5}
    both |= {f"LANTK {strength:g}": 0.6 for strength in settings.strengths}
    ratios_ = experiment.Ratios({method: (value, value) for method, value in both.items()})
    values = {experiment.Pair(number, pair, "kernels"): ratios_ for number, pair in enumerate(settings.pairs)}
    report = experiment.EXPERIMENT.report(Results(settings, 0, Data("cifar.npz", "0", False), values, manifest))
    assert {one.verdict for one in report.comparisons} == {Verdict.SMALLER}
    assert [one.verdict for one in report.claims] == [Verdict.HOLDS, Verdict.FAILS] * 2
    assert report.claims[1].found == "+0.03 to +0.03"


def test_the_sentence_on_all_45_tasks():
    settings = replace(experiment.sizes("default", True), tasks="all", measures=("network",))
    manifest = experiment.run(replace(experiment.QUICK, pairs=((3, 8),), measures=("kernels",))).manifest
    for last, verdict in ((0.6, Verdict.HOLDS), (0.55, Verdict.FAILS)):
        values = {
            experiment.Pair(n, (a, b), "network"): experiment.Ratios(
                {"NN-init": (0.55, 0.55), "NN-trained": (0.6 if n < 44 else last,) * 2}
            )
            for n, (a, b) in enumerate(settings.chosen)
        }
        report = experiment.report(Results(settings, 0, Data("cifar.npz", "0", False), values, manifest))
        assert len(values) == 45 and not report.comparisons
        assert [one.verdict for one in report.claims] == [verdict] * 2 and report.claims[0].paper.startswith(
            "for all 45"
        )


def test_a_strength_beyond_similarities_has_no_ratio():
    found = ratios(replace(experiment.QUICK, pairs=((3, 8),), strength=1000.0, strengths=(0.1, 1000.0)))
    assert found["train-train"]["LANTK"] == found["test-train"]["LANTK 1000"] == (None,)
    assert found["train-train"]["LANTK 0.1"][0] > found["train-train"]["NTK"][0]
    assert found["train-train"]["NTK"][0] > 0.5


def test_pooled_images():
    whole, pooled = (
        ratios(replace(experiment.QUICK, pairs=((0, 1),), pool=pool))["train-train"]["NTK"] for pool in (1, 4)
    )
    assert whole != pooled
    with pytest.raises(InputError, match="pool must be between 1 and"):
        experiment.run(replace(experiment.QUICK, pool=9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--width", "0"], "width must be at least 1"),
        (["--train", "7"], "multiple"),
        (["--strengths", "-1"], "a strength must be finite and not negative"),
        (["--strength", "inf"], "a strength must be finite and not negative"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        experiment.main(["--quick", *options])
    assert message in capsys.readouterr().err


def test_the_authors_sum_and_inputs_are_compared_without_sampling(tmp_path):
    data = write_images(tmp_path / "a.npz", classes=10, n=8, side=4)
    settings = replace(
        experiment.QUICK, pairs=((6, 8),), train=16, test=8, inputs="signed", diagonal="with", strengths=(),
        measures=("kernels", "expected init"),
    )  # fmt: skip
    results = experiment.run(settings, data=data)
    found = experiment.ratios_of(results)["train-train"]
    images = load_images(16, 8, 0, data, (6, 8), "signed")
    x = torch.cat([images.x.flatten(1), torch.ones(16, 1)], 1).double()
    assert float(images.x.abs().max()) <= 1 and found["NN-init"] == ()
    y = torch.from_numpy(images.y)
    plain = nn.Sequential(nn.Linear(49, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    k = ntkit.infinite_width(plain).ntk(x)
    similar = k / (k.diagonal()[:, None] * k.diagonal()).sqrt()
    same, other = similar[y[:, None] == y].mean(), similar[y[:, None] != y].mean()  # the pairs i = j among them
    assert found["NTK"][0] == pytest.approx(float(same / (same + other)), rel=1e-9)
    assert found["NTK"][0] > float(ntkit.local_elasticity(k, y)) and found["expected init"][0] is not None
    rows = experiment.report(results).comparisons
    assert {one.quantity.split(", ")[1] for one in rows} == {"NTK", "LANTK"} and {one.verdict for one in rows} == {
        Verdict.SMALLER
    }
    whole = replace(settings, train=10_000, test=2_000)
    exact = experiment.report(Results(whole, 0, results.data, results.values, results.manifest)).comparisons
    assert {one.tolerance for one in exact} == {0.02} and {one.verdict for one in exact} == {Verdict.OUTSIDE}
