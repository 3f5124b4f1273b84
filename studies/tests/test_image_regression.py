from __future__ import annotations

import math

import pytest
import torch

import ntkit
from ntkit.errors import InputError
from ntkit_studies import image_regression

SETTINGS = image_regression.Settings(
    photographs=("china", "flower"),
    side=32,
    features=32,
    levels=4,
    gaussian_scales=(2.0, 3.0),
    positional_scales=(4.0,),
    steps=(10.0, 1000.0),
    network_width=16,
    network_steps=10,
)


def test_mappings_side_by_side():
    results = image_regression.run(SETTINGS)
    kernels = {cell.name: found for cell, found in results.values.items() if not cell.finite}
    assert list(kernels) == list(image_regression.MAPPINGS)
    for name, found in kernels.items():
        assert len(found.psnr) == 2 and len(found.psnr[0]) == 2
        if name != "positional, far too high":
            assert all(late > early for early, late in zip(*found.psnr, strict=True))
    assert kernels["gaussian"].scale in (2.0, 3.0) and kernels["positional, far too high"].scale == 1024
    assert kernels["none"].scale is None
    far, none = kernels["positional, far too high"], kernels["none"]
    assert all(a < b for a, b in zip(far.converged, none.converged, strict=True))
    networks = [found for cell, found in results.values.items() if cell.finite]
    assert len(networks) == 4 and all(found.converged is None and found.steps[-1] == 10 for found in networks)
    assert len(image_regression.report(results).sections) == 2


def test_the_course_is_that_of_gradient_flow():
    cell = image_regression.Mapping("basic", False)
    run = image_regression.Run(SETTINGS, 0, None, None, lambda *_: None)
    shared = image_regression.prepare(run)
    kernel = image_regression._kernel(shared, shared.choices["basic"])
    top = float(torch.linalg.eigvalsh(kernel(shared.x))[-1])
    flow = ntkit.GradientFlow(kernel).fit(shared.x, shared.y)
    found = image_regression.compute(shared, cell)
    for steps, psnr in zip(SETTINGS.steps, found.psnr, strict=True):
        mse = (flow.predict(shared.x_test, t=steps / top) - shared.y_test).square().mean(0)
        assert psnr == pytest.approx([-10 * math.log10(value) for value in mse.tolist()], abs=1e-6)


@pytest.mark.parametrize("change", [{"photographs": ()}, {"side": 31}])
def test_bad_settings(change):
    with pytest.raises(InputError, match="photographs must be at least one, and side even"):
        image_regression.Settings(**change)


@pytest.mark.slow
def test_embeddings_gain_after_long_training():
    pytest.importorskip("skimage")
    settings = image_regression.Settings(photographs=("astronaut", "text", "coffee"), network_steps=0)
    results = image_regression.run(settings)
    last = {cell.name: torch.tensor(found.psnr[-1]) for cell, found in results.values.items()}
    assert (last["basic"] >= last["none"] + 1).all()
    assert (last["gaussian"] >= last["none"] + 2.5).all()
    assert (last["positional, far too high"] < last["none"]).all()
