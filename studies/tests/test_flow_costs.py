from __future__ import annotations

import numpy as np
import pytest
import torch
from studies.tests.image_files import write_images

import ntkit
from ntkit_studies import _flow_costs as costs
from ntkit_studies._deep_networks import myrtle

CASES = [costs.Case(regime, classes, 0, 0) for regime in costs.REGIMES for classes in (2, 10)]


def shared(folder, sizes=(10, 20), test=10, cases=CASES, data=None) -> costs.Shared:
    return costs.share(costs.Inputs(sizes, test, (3, 5), 1, data), 100.0, folder, cases, myrtle)


def test_blocks_cover_every_size_once():
    cells = costs.case_cells(CASES[:1], (400, 1200))
    blocks = [one for one in cells if isinstance(one, costs.Block)]
    for part in ("train", "test"):
        ends = [(one.first, one.last) for one in blocks if one.part == part]
        assert ends == [(0, 400), (400, 500), (500, 1000), (1000, 1200)]
    assert [one.n for one in cells if isinstance(one, costs.Flow)] == [400, 1200]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_blocks_and_flows_are_those_of_the_whole_kernel(case, tmp_path):
    held = shared(tmp_path, cases=[case])
    found = {cell: costs.compute(held, cell) for cell in costs.case_cells([case], (10, 20))}
    works = {one: work for one, work in found.items() if isinstance(one, costs.Block)}
    assert [work.pairs for work in works.values()] == [55, 55 + 100, 100, 100]
    assert all(work.operations > 0 for work in works.values())
    images, (kernel, _) = held.images[case.classes, 0, 0], held.kernels[case]
    assert np.bincount(images.y[:10]).tolist() == [10 // case.classes] * case.classes
    gram, between = kernel(images.x).double(), kernel(images.x_test, images.x).double()
    y = torch.from_numpy(images.y)
    targets = y.double() if case.classes == 2 else torch.nn.functional.one_hot(y, 10).double()
    loss = "binary_cross_entropy" if case.classes == 2 else "cross_entropy"
    flow = ntkit.GradientFlow("precomputed", loss=loss, rtol=1e-8, atol=1e-10).fit(gram, targets)
    outputs = flow.predict(between, t=100.0 / 20)
    guess = (outputs > 0).long() if case.classes == 2 else outputs.argmax(1)
    outcome = found[costs.Flow(case, 20)]
    assert outcome.test == float((guess.numpy() == images.y_test).mean())
    assert outcome.loss == pytest.approx(float(flow.loss_at(100.0 / 20)) / 20, rel=1e-4)
    assert outcome.operations > 2 * 20 * 20


def test_operations_of_the_exact_kernel_are_counted_by_entry(tmp_path):
    (case,) = [one for one in CASES if one.regime == "NTK" and one.classes == 2]
    work = costs.compute(shared(tmp_path, cases=[case]), costs.Block(case, "train", 0, 10))
    # Two layers of 8x8, one of 4x4 and one of 2x2 pixels, every pair of pixels.
    assert work.operations == 55 * (39 + 2 * 4) * (
        2 * 64**2 + 16**2 + 4**2
    )  # a ReLU, and four additions for K and for Theta


def test_images_are_resized_and_draws_differ(tmp_path):
    cases = [costs.Case("NTK", 2, side, draw) for side, draw in ((0, 0), (4, 0), (12, 0), (0, 1))]
    images = shared(tmp_path, cases=cases).images
    assert [tuple(one.x.shape[2:]) for one in images.values()] == [(8, 8), (4, 4), (12, 12), (8, 8)]
    assert not torch.equal(images[2, 0, 0].x, images[2, 0, 1].x)
    assert torch.allclose(images[2, 4, 0].x.mean((1, 2, 3)), images[2, 0, 0].x.mean((1, 2, 3)), atol=0.05)


def test_files_of_images(tmp_path):
    case = costs.Case("NNGP", 10, 4, 0)
    held = shared(tmp_path, sizes=(10,), cases=[case], data=write_images(tmp_path / "a.npz", 10, 2, 8))
    assert isinstance(costs.compute(held, costs.Block(case, "test", 0, 10)), costs.Work)
