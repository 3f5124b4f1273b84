"""Every experiment of feature learning: quickly, from the command line, and going on from its file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from ntkit.errors import InputError
from ntkit_studies._by_seed import Seed
from ntkit_studies.feature_learning import (
    adaptive_speeds,
    alignment_prediction,
    corrupted_agop,
    depth_prediction,
    images,
    initial_scales,
    speed_limits,
    stable_rate,
)
from ntkit_studies.feature_learning._image_files import load_image_rows, standardize
from ntkit_studies.feature_learning._networks import build_mlp, weight_at
from ntkit_studies.methods import early_alignment
from ntkit_studies.skeleton import Verdict

MODULES = (
    corrupted_agop,
    speed_limits,
    initial_scales,
    adaptive_speeds,
    alignment_prediction,
    depth_prediction,
    images,
    stable_rate,
)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.EXPERIMENT.name)
def test_quick_run(module, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--quick", "--seeds", "1", "--output", str(tmp_path)]
    assert module.EXPERIMENT.main(arguments) == 0
    assert "verdict" in capsys.readouterr().out
    results = module.EXPERIMENT.read(tmp_path)
    assert list(results.values) == [Seed(0)]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<img alt=") >= 1 and "Beside the paper" in page
    with (tmp_path / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["verdict"] for row in rows if row["paper"] != "-"} == {Verdict.SMALLER.value}
    assert {row["verdict"] for row in rows if row["paper"] == "-"} <= {Verdict.OURS.value}
    # The numbers are in the folder: nothing is computed again.
    before = (tmp_path / "results.json").read_bytes()
    written = (tmp_path / "cells.jsonl").read_bytes()
    assert module.EXPERIMENT.main(arguments) == 0
    assert (tmp_path / "results.json").read_bytes() == before and (tmp_path / "cells.jsonl").read_bytes() == written


def test_gaps_in_curves_are_kept(tmp_path: Path) -> None:
    results = initial_scales.EXPERIMENT.run(initial_scales.sizes("quick", False), folder=tmp_path)
    again = initial_scales.EXPERIMENT.read(tmp_path)
    curve = "-1/1/0"
    for cell, record in results.values.items():
        for name, values in record.curves[curve].items():
            np.testing.assert_array_equal(again.values[cell].curves[curve][name], values)


def test_numbers_of_the_paper_get_a_verdict_by_rule() -> None:
    records = [corrupted_agop.Record(0.9 + 0.01 * n, 0.5, 5.0 + n, {}) for n in range(3)]
    found = {one.quantity: one.verdict for one in corrupted_agop.comparisons(corrupted_agop.Settings(), records)}
    assert found["rho(F, G)"] is Verdict.INSIDE and found["rho(F, W^T Q W)"] is Verdict.OUTSIDE


def said(module, records, **others) -> dict[str, bool | None]:
    """Give what is claimed of records at the default size."""
    return {one.what: one.holds for one in module.claims(module.Settings(**others), records)}


def test_prediction_that_is_close_only_where_everything_is_near_one() -> None:
    gammas = alignment_prediction.Settings().gammas
    ones, far = [1.0] * len(gammas), [*[1.0] * (len(gammas) - 2), 0.5, 0.2]
    close = [alignment_prediction.Record(far, far, far, {}) for _ in range(3)]
    first, means, gamma, _ = said(alignment_prediction, close).values()
    assert first and means and gamma is False  # it falls where gamma grows
    near = [*far[:-2], 0.6, 0.4]
    wrong = [alignment_prediction.Record(near, far, far, {}), alignment_prediction.Record(ones, ones, ones, {})]
    first, means, *_ = said(alignment_prediction, wrong).values()
    assert not first and not means  # though the correlation over all points is 0.99
    rising = [alignment_prediction.Record(list(gammas), list(gammas), ones, {})]
    assert list(said(alignment_prediction, rising).values())[:3] == [True, True, True]


@pytest.mark.parametrize(("wide", "holds"), [(0.98, True), (0.91, False)])
def test_the_wider_network_must_be_closer_to_the_prediction(wide, holds) -> None:
    keys = [f"{name}/{task}" for name in depth_prediction.ACTIVATIONS for task in depth_prediction.TASKS]
    observed = {f"{key}/{width}": [seen] for key in keys for width, seen in ((128, 0.95), (1024, wide))}
    record = depth_prediction.Record({key: [1.0] for key in keys}, observed)
    found = said(depth_prediction, [record], alphas=(1.0,))
    assert found["quadratic/low rank: that gap at width 128 and at width 1024"] is holds
    assert found["quadratic/high rank, width 128: largest |predicted - observed| over alpha"] is False  # 0.05
    assert found["low rank, width 1024: that gap, quadratic and ReLU"] is False  # no less close


def test_random_eigenvectors_must_reduce_the_correlation_of_figure_13_to_what_the_paper_has() -> None:
    curves = {
        m: {"uncentred": [r], "centred": [r], "centred_ratio": [q]}
        for m, r, q in (("standard", 0.7, 0.0), ("SLO", 0.8, 0.03))
    }
    found = [images.Record([1], curves, {}, {}, 0.86, each, [1, 1]) for each in ([0.4, 0.37], [0.05, 0.1])]
    higher, ratio, aligned, corrupted = said(images, found[:1]).values()
    assert higher and aligned and not ratio and not corrupted
    assert list(said(images, found[1:]).values())[-1] is True


def initial_scale_record(centred=(0.9, 0.9, 0.9, 0.9)) -> initial_scales.Record:
    """Make a record where, at s_0 = 1, nothing is as the paper says, and the second layer rises for no scale."""
    settings = initial_scales.Settings()
    curves, losses = {}, {}
    for alpha in settings.alphas:
        for number, scale in enumerate(settings.scales):
            losses[f"{alpha:g}/{scale:g}"] = {"train": [1.0, float("nan")]}
            for layer in ("0", "2"):
                ratio, ptk = ([20.0, 0.9], [0.5, 0.7]) if scale == 1 else ([0.01, 0.9], [0.8, 0.4])
                end = 0.6 + 0.1 * number if layer == "0" else 0.2
                one = {"uncentred": [0.1, end], "double_ratio": [0.0, *ratio], "ptk_centred": [0.0, *ptk]}
                curves[f"{alpha:g}/{scale:g}/{layer}"] = one | {"centred": [float("nan"), centred[number], 0.85]}
    return initial_scales.Record([0, 5, 800], curves, losses)


def test_the_sentences_on_initial_scales_are_asked_at_every_scale() -> None:
    found = said(initial_scales, [initial_scale_record()])
    assert all(holds is not None for what, holds in found.items() if "train loss" not in what)
    wrong = [what for what, holds in found.items() if holds is False]
    assert len([what for what in wrong if "layer 2, uncentred" in what]) == 6 and len(wrong) == 11
    assert len([what for what in wrong if "s_0 = 1," in what]) == 4


@pytest.mark.parametrize(
    ("centred", "early", "least"),
    [((0.9, 0.9, 0.9, 0.9), True, True), ((0.81, 0.9, 0.9, 0.95), False, True), ((0.7, 0.7, 0.7, 0.7), False, False)],
)
def test_the_centred_correlation_is_the_same_at_every_scale_early_on(centred, early, least) -> None:
    found = said(initial_scales, [initial_scale_record(centred)])
    assert found["isotropic: layer 1, centred at step 5, s_0 from 1 to 0.001"] is early
    assert found["isotropic: layer 1, least centred of the training, s_0 from 1 to 0.001"] is least


@pytest.fixture
def image_file(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    path = tmp_path / "images.npz"
    np.savez(path, x_train=random.integers(0, 256, (200, 6, 6, 3), dtype=np.uint8), y_train=np.arange(200) % 10)
    return path


def test_images_from_a_file(image_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--data", str(image_file), "--quick", "--seeds", "1", "--output", str(tmp_path / "out")]
    assert images.EXPERIMENT.main(arguments) == 0
    assert "Pearson" in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8").count("<img alt=") == 3


def test_image_rows(image_file: Path, tmp_path: Path) -> None:
    rows = load_image_rows(image_file)
    assert (
        rows.x.shape == (200, 108) and rows.shape == (3, 6, 6) and 0 <= float(rows.x.min()) <= float(rows.x.max()) <= 1
    )
    two = rows.balanced(20, 0, (3, 7))
    assert sorted(two.labels.tolist()) == [0] * 10 + [1] * 10
    scaled = standardize(rows.x)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(108), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0, correction=0), torch.ones(108), atol=1e-4, rtol=0)
    assert load_image_rows(None).shape == (1, 8, 8)
    with pytest.raises(InputError, match="cannot read"):
        load_image_rows(tmp_path / "none.npz")
    with pytest.raises(InputError, match="class 3 must have 100"):
        rows.balanced(200, 0, (3, 7))


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


def test_files_that_hold_no_images(tmp_path):
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "cut.npz").write_bytes(b"PK\x03\x04")
    (tmp_path / "nothing.npz").write_bytes(b"")
    np.savez(tmp_path / "flat.npz", x_train=np.zeros(3), y_train=np.zeros(3))
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(InputError, match="npz file with x_train"):
            load_image_rows(path)
