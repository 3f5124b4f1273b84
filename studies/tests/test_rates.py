from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit import infinite_width
from ntkit.errors import InputError
from ntkit_studies import _rates as rates
from ntkit_studies import find
from ntkit_studies._networks import dense_network
from ntkit_studies.skeleton import Run
from ntkit_studies.skeleton._run import silent

ESTIMATED = (
    "cntk_cifar", "hierarchy_error", "hierarchy_planes_ships", "label_aware_cifar", "local_elasticity_cifar",
    "myrtle_by_resolution", "myrtle_by_size", "random_features_cifar", "resnet_by_size", "trained_kernel_cifar", "uci",
)  # fmt: skip
SLOW = ("hierarchy_error", "hierarchy_planes_ships", "myrtle_by_resolution", "resnet_by_size", "uci")


def test_shape_of_the_images_of_a_file(tmp_path):
    path = tmp_path / "images.npz"
    for write in (np.savez, np.savez_compressed):
        write(path, x_train=np.zeros((5, 12, 12, 3), np.uint8), y_train=np.zeros(5))
        assert rates.image_shape(path) == (3, 12)
    np.savez(path, x_train=np.zeros((5, 12)))
    for wrong in (path, tmp_path / "missing.npz"):
        with pytest.raises(InputError, match=r"must be an \.npz file"):
            rates.image_shape(wrong)


def test_rates_are_positive():
    assert rates.cholesky_rate() > 0 and rates.product_rate() > 0 and rates.product_rate(torch.float64) > 0
    assert rates.entry_seconds(infinite_width(dense_network(5, 8)).ntk, (5,)) > 0


@pytest.fixture
def quiet_rates(monkeypatch):
    """A machine that does everything in a second, so that an estimate measures nothing."""
    for name in ESTIMATED:
        module = __import__(find(name).sizes.__module__, fromlist=["x"])
        for one, value in (("entry_seconds", 1.0), ("cholesky_rate", 1e9), ("product_rate", 1e9), ("duration", 1.0)):
            if one in vars(module):
                monkeypatch.setattr(module, one, lambda *_, value=value, **__: value)
        if "fitted_seconds" in vars(module):
            monkeypatch.setattr(module, "fitted_seconds", lambda *_: lambda n: 1e-12 * n**3)
    monkeypatch.setattr("ntkit_studies._flow_estimate.entry_seconds", lambda *_: 1.0)
    monkeypatch.setattr("ntkit_studies._flow_estimate.fitted_seconds", lambda *_: lambda n: 1e-12 * n**3)


@pytest.mark.parametrize("name", ESTIMATED)
def test_full_size_takes_more_than_the_default(name, tmp_path, quiet_rates):
    experiment = find(name)
    path = tmp_path / "images.npz"
    np.savez(path, x_train=np.zeros((5, 32, 32, 3), np.uint8))
    data = None if name in ("uci", "hierarchy_error") else path
    default, full = (
        experiment.estimate(Run(experiment.sizes(size, data is not None), 0, data, tmp_path, silent))
        for size in ("default", "full")
    )
    if name != "uci":  # its default is the study's own size
        assert full.seconds > default.seconds and full.bytes > default.bytes
    assert full.seconds > 0 and full.bytes > 0 and "Measured here" in full.basis and "--" in full.change


def test_memory_of_all_of_cifar(tmp_path, quiet_rates):
    """50,000 images: a Gram matrix of 20 GB in float64, and a factor of 20 GB."""
    path = tmp_path / "images.npz"
    np.savez(path, x_train=np.zeros((5, 32, 32, 3), np.uint8))
    experiment = find("cntk_cifar")
    found = experiment.estimate(Run(experiment.sizes("full", True), 0, path, tmp_path, silent))
    assert found.bytes == pytest.approx(44e9)
    # A second for each entry of two convolutions, so 20 for the 40 of all depths; a factorisation of n^3 / 3 operations each.
    assert found.seconds == pytest.approx(20 * (50_000 * 50_001 / 2 + 5e8) + 5 * 50_000**3 / 3 / 1e9)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in ESTIMATED]
)
def test_estimates_measure_here(name, tmp_path):
    """Trials themselves run, on the digits and at the smallest size."""
    experiment = find(name)
    found = experiment.estimate(Run(experiment.sizes("quick", False), 0, None, tmp_path, silent))
    assert found.seconds > 0 and found.bytes > 0
