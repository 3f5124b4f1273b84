from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import ntkit
from ntkit.experiments import hierarchy_planes_ships as experiment
from ntkit.experiments._images import load_images


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    path = tmp_path_factory.mktemp("quick") / "a.json"
    return experiment.run(experiment.QUICK, seed=1, path=path), path


def test_a_stopped_run_goes_on_to_the_same_numbers(quick):
    first, path = quick
    content = json.loads(path.read_text())
    for key in list(content["cells"])[:4]:
        del content["cells"][key]
    path.write_text(json.dumps(content))
    again = experiment.run(experiment.QUICK, seed=1, path=path)
    for name, values in first.means.items():
        assert values.shape == (2, 2)
        np.testing.assert_array_equal(values, again.means[name])


def test_means_are_those_of_the_label_part(quick):
    result, _ = quick
    settings = experiment.QUICK
    x, y = experiment.points(settings, 3, 1, 1, None)
    generator = torch.Generator().manual_seed(1)
    kernel = ntkit.TangentHierarchy("relu", width=settings.width, n_samples=settings.samples, generator=generator).fit(
        x, y
    )
    part = settings.width * kernel.label_part(x)
    within = [float(part[i, j]) for i in range(6) for j in range(6) if y[i] == y[j] and i != j]
    between = [float(part[i, j]) for i in range(6) for j in range(6) if y[i] != y[j]]
    assert result.means["intra"][1, 1] == pytest.approx(np.mean(within), rel=1e-9)
    assert result.means["inter"][1, 1] == pytest.approx(np.mean(between), rel=1e-9)


def test_levels_end_at_the_second(quick):
    for name, shares in quick[0].levels.items():
        assert shares.sum() == pytest.approx(1), name
        assert shares[1] < 1e-20 and shares[3] == 0, name  # fair coins: even in the labels, and quadratic
        assert shares[2] > 0, name


def test_points_keep_their_inner_products_but_for_one_scale():
    x, y = experiment.points(experiment.QUICK, 3, 0, 0, None)
    images = load_images(6, 2, 0, None, (3, 8))
    flat = images.x.flatten(1).double()
    torch.testing.assert_close(x @ x.T, flat @ flat.T / flat.square().sum(1).mean())
    assert x.shape == (6, 6) and y.tolist() == np.where(images.y == 3, 1.0, -1.0).tolist()


def test_program(tmp_path, capsys):
    path = tmp_path / "result.json"
    options = ["--quick", "--sizes", "2", "--draws", "1", "--classes", "0", "1", "--output", str(path)]
    assert experiment.main(options) == 0
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
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


def test_settings_change_the_file(tmp_path, quick):
    _, path = quick
    with pytest.raises(ntkit.errors.InputError, match="other settings"):
        experiment.run(replace(experiment.QUICK, strength=0.2), seed=1, path=path)
