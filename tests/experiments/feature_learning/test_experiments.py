"""Every experiment of feature learning: quickly, from the command line, and going on from its file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from ntkit.experiments.feature_learning._runner import mean_and_spread

from ntkit.errors import InputError
from ntkit.experiments.feature_learning import (
    adaptive_speeds,
    alignment_prediction,
    corrupted_agop,
    depth_prediction,
    images,
    initial_scales,
    speed_limits,
)
from ntkit.experiments.feature_learning._image_files import load_celeba, load_npz, load_svhn, standardize
from ntkit.experiments.feature_learning._networks import build_mlp, weight_at
from ntkit.features import early_alignment

MODULES = (corrupted_agop, speed_limits, initial_scales, adaptive_speeds, alignment_prediction, depth_prediction)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.EXPERIMENT.name)
def test_quick_run(module, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "numbers.json"
    assert module.EXPERIMENT.main(["--quick", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "paper:" in printed and "here:" in printed
    assert list(tmp_path.glob("numbers-figure*.png"))
    content = json.loads(output.read_text())
    assert len(content["records"]) == 1
    # The numbers are in the file: nothing is computed again.
    object.__setattr__(module.EXPERIMENT, "measure", lambda *_: pytest.fail("computed again"))
    try:
        assert module.EXPERIMENT.main(["--quick", "--output", str(output)]) == 0
    finally:
        object.__setattr__(module.EXPERIMENT, "measure", module.measure)


@pytest.fixture
def image_file(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path / "images.npz"
    np.savez(path, x_train=random.integers(0, 256, (200, 6, 6, 3), dtype=np.uint8), y_train=np.arange(200) % 10)
    return path


def test_images(image_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "numbers.json"
    assert images.main(["--data", str(image_file), "--quick", "--output", str(output)]) == 0
    assert "Pearson" in capsys.readouterr().out
    assert len(list(tmp_path.glob("numbers-figure*.png"))) == 3


def test_image_rows(image_file: Path, tmp_path: Path) -> None:
    rows = load_npz(image_file)
    assert (
        rows.x.shape == (200, 108) and rows.shape == (3, 6, 6) and 0 <= float(rows.x.min()) <= float(rows.x.max()) <= 1
    )
    two = rows.balanced(20, 0, (3, 7))
    assert sorted(two.labels.tolist()) == [0] * 10 + [1] * 10
    scaled = standardize(rows.x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(108), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(108), atol=1e-4, rtol=0)
    for source, message in (("", "must be named"), (str(tmp_path / "none.npz"), "cannot read")):
        with pytest.raises(InputError, match=message):
            images._load(source)
    with pytest.raises(InputError, match="class 3 must have 100"):
        rows.balanced(200, 0, (3, 7))
    with pytest.raises(InputError, match="list_attr_celeba"):
        load_celeba(tmp_path)


def test_svhn_and_celeba_files(tmp_path: Path) -> None:
    from PIL import Image
    from scipy.io import savemat

    pixels = np.random.default_rng(0).integers(0, 256, (4, 4, 3, 5), dtype=np.uint8)
    savemat(tmp_path / "train.mat", {"X": pixels, "y": np.array([[10], [1], [2], [3], [10]])})
    digits = load_svhn(tmp_path / "train.mat")
    assert digits.labels.tolist() == [0, 1, 2, 3, 0] and digits.shape == (3, 4, 4)
    np.testing.assert_allclose(digits.x[2].reshape(3, 4, 4)[1].numpy(), pixels[:, :, 1, 2] / 255, rtol=1e-6)
    (tmp_path / "img_align_celeba").mkdir()
    lines = ["3", "Bald Eyeglasses Smiling"]
    for number, mark in enumerate((-1, 1, -1)):
        Image.new("RGB", (17, 21), (number, 0, 0)).save(tmp_path / "img_align_celeba" / f"{number}.jpg")
        lines.append(f"{number}.jpg 1 {mark} -1")
    (tmp_path / "list_attr_celeba.txt").write_text("\n".join(lines))
    faces = load_celeba(tmp_path)
    assert faces.labels.tolist() == [1, 0] and faces.shape == (3, 32, 32)


def test_networks_have_the_variances_asked_for() -> None:
    net = build_mlp([400, 300, 1], [0.01, 4.0], 0)
    assert float(weight_at(net, "0").var()) == pytest.approx(0.01 / 400, rel=0.03)
    assert float(weight_at(net, "2").var()) == pytest.approx(4 / 300, rel=0.3)
    assert not any(name.endswith("bias") for name, _ in net.named_parameters())


def test_quadratic_alignment_is_that_of_the_network() -> None:
    class Quadratic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = torch.nn.Linear(6, 9, bias=False), torch.nn.Linear(9, 1, bias=False)

        def forward(self, x):
            return self.head(self.first(x) ** 2)

    net, generator = Quadratic().double(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        net.first.weight.copy_(torch.randn(9, 6, generator=generator, dtype=torch.float64) / 3)
        net.head.weight.copy_(torch.randn(9, generator=generator, dtype=torch.float64)[None])
    x = torch.randn(8, 6, dtype=torch.float64, generator=generator)
    y = torch.randn(8, dtype=torch.float64, generator=generator)
    found = alignment_prediction.quadratic_alignment((x.T * y) @ x, x.T @ x, 9, torch.Generator().manual_seed(3))
    # Targets f - y make the residuals y.
    assert found == pytest.approx(early_alignment(net, x, net(x).detach()[:, 0] - y)["first"].rho, rel=1e-10)


def test_means_leave_gaps_out() -> None:
    assert mean_and_spread([1.0, float("nan"), 3.0]) == "2.000 ± 1.000" and mean_and_spread([float("nan")]) == "nan"
