from __future__ import annotations

import numpy as np
import pytest
import torch

import ntkit
from ntkit_studies import hierarchy_planes_ships as experiment
from ntkit_studies._images import load_images
from ntkit_studies.skeleton import Verdict


@pytest.fixture(scope="module")
def quick():
    return experiment.run(experiment.QUICK, seed=1)


def test_means_have_a_row_for_each_size(quick):
    means = experiment.means_of(quick)
    assert {values.shape for values in means.values()} == {(2, 2)} and set(means) == set(experiment.MEANS)


def test_means_are_those_of_the_label_part(quick):
    means = experiment.means_of(quick)
    settings = experiment.QUICK
    x, y = experiment.points(settings, 3, 1, 1, None)
    generator = torch.Generator().manual_seed(1)
    kernel = ntkit.TangentHierarchy("relu", width=settings.width, n_samples=settings.samples, generator=generator).fit(
        x, y
    )
    part = settings.width * kernel.label_part(x)
    within = [float(part[i, j]) for i in range(6) for j in range(6) if y[i] == y[j] and i != j]
    between = [float(part[i, j]) for i in range(6) for j in range(6) if y[i] != y[j]]
    assert means["intra"][1, 1] == pytest.approx(np.mean(within), rel=1e-9)
    assert means["inter"][1, 1] == pytest.approx(np.mean(between), rel=1e-9)


def test_levels_end_at_the_second(quick):
    levels = quick.values[experiment.Sample("levels", 2, 0)].levels
    assert set(levels) == set(experiment.KERNELS)
    for name, shares in levels.items():
        assert sum(shares) == pytest.approx(1), name
        assert shares[1] < 1e-20 and shares[3] == 0, name  # fair coins: even in the labels, and quadratic
        assert shares[2] > 0, name


def test_points_keep_their_inner_products_but_for_one_scale():
    x, y = experiment.points(experiment.QUICK, 3, 0, 0, None)
    images = load_images(6, 2, 0, None, (3, 8))
    flat = images.x.flatten(1).double()
    torch.testing.assert_close(x @ x.T, flat @ flat.T / flat.square().sum(1).mean())
    assert x.shape == (6, 6) and y.tolist() == np.where(images.y == 3, 1.0, -1.0).tolist()


@pytest.mark.parametrize(
    ("intra", "inter", "size", "verdict"),
    [
        # The stored draws of five planes and five ships: their ratios, -65 to 13, decide nothing; the differences do.
        ([1.71, 1.05, 2.88, 1.90, 1.78], [0.52, -0.016, 2.23, 0.147, 0.293], 5, Verdict.HOLDS),
        ([1.0, 2.0, 3.0], [2.0, 1.0, 2.9], 5, Verdict.FAILS),  # a difference of 0.03 with an error of 0.6
        ([1.0], [0.5], 9, Verdict.HOLDS),
        ([1.0, 1.1], [0.5, 0.4], 4, Verdict.SMALLER),
    ],
)
def test_whether_values_are_larger_within_classes(intra, inter, size, verdict):
    found = experiment._larger_within(np.array(intra), np.array(inter), size, True)
    assert found.verdict is verdict and found.paper == "98 and 48: larger within"
    assert experiment._larger_within(np.array(intra), np.array(inter), size, False).verdict is Verdict.OURS


@pytest.mark.slow
def test_program(tmp_path, capsys):
    folder = tmp_path / "result"
    options = ["--quick", "--sizes", "2", "--draws", "1", "--classes", "0", "1", "--output", str(folder)]
    assert experiment.main(options) == 0
    assert "data:image/png" in (folder / "report.html").read_text(encoding="utf-8")
    output = capsys.readouterr().out
    assert "98" in output and "K_NTH" in output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "missing.npz"], "must be an .npz file"),
        (["--sizes", "1"], "sizes must be at least 2"),
        (["--draws", "0"], "draws must be at least 1"),
        (["--classes", "1", "1"], "two different"),
    ],
)
def test_bad_options(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        experiment.main(["--quick", *options])
    assert message in capsys.readouterr().err
