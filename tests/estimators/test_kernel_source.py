"""Where kernels come from: modules with their gains, kernels, Gram matrices; and parameters that make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.estimators.problems import Array, Laplace, regression_data
from torch import nn

import ntkit
from ntkit._src.estimators._training_data import KernelSource, kernel_of, read_source
from ntkit.errors import InputError, InputTypeError


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return regression_data()


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"input_shape": (3, 3)}, InputError, r"9 features. Got 7 features"),
        ({"input_shape": 7}, InputTypeError, r"\(3, 32, 32\)"),
        ({"input_shape": (7.5,)}, InputTypeError, r"integers"),
        ({"input_shape": ()}, InputError, r"at least one size"),
        ({"input_shape": (-1, -7)}, InputError, r"positive"),
        ({"kernel": "rbf"}, InputError, r"'nngp', 'precomputed' or an ntkit Kernel. Got 'rbf'"),
        ({"kernel": None}, InputError, r"Got None"),
        ({"ridge": -0.1}, InputError, r"at least 0"),
        ({"ridge": "0"}, InputTypeError, r"ridge must be a number"),
        ({"dtype": "float16"}, InputError, r"'float32' or 'float64'. Got 'float16'"),
        ({"dtype": torch.int64}, InputError, r"Got torch.int64"),
        ({"device": "nowhere"}, InputError, r"Got 'nowhere'"),
        ({"device": "cuda:99"}, InputError, r"Got 'cuda:99'"),
        ({"device": "meta"}, InputError, r"'cpu'"),
        ({"module": "mlp"}, InputTypeError, r"torch.nn.Module or None. Got 'mlp'"),
        ({"module": nn.Linear}, InputTypeError, r"an instance"),
        ({"module": nn.ReLU(), "kernel": Laplace()}, InputError, r"leave module out"),
        ({"module": nn.ReLU(), "kernel": "precomputed"}, InputError, r"must be None"),
        ({"input_shape": (7,), "kernel": "precomputed"}, InputError, r"must be None"),
        ({"kernel": "precomputed"}, InputError, r"square Gram matrix K\(X, X\) at fit. Got shape \(60, 7\)"),
    ],
)
@pytest.mark.parametrize("kind", [ntkit.NTKRegressor, ntkit.NTKClassifier])
def test_bad_parameters_are_explained(
    data: tuple[Array, Array], kind: Any, parameters: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind(**parameters).fit(data[0], np.arange(60) % 2)


OWN = {"w_std": 1.3, "b_std": 0.2}


def network(own: bool) -> nn.Module:
    net = nn.Sequential(nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 1))
    return ntkit.parametrize_ntk(net, **OWN) if own else net


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda net, **more: ntkit.NTKRegressor(net, **more),
        lambda net, **more: ntkit.NTKClassifier(net, **more),
        lambda net, ridge=0.0, **gains: ntkit.LabelAwareClassifier(
            net if not gains else None,
            kernel=ntkit.infinite_width(net, **gains).ntk if gains else "ntk",
            strength=0.1,
            ridge=ridge,
        ),
    ],
    ids=["regressor", "classifier", "label-aware"],
)
def test_gains_are_those_of_the_module(data: tuple[Array, Array], make: Any, own: bool) -> None:
    """A module in the NTK parametrisation keeps its gains; others have sqrt(2) and 0."""
    X, y = data[0][:20], np.arange(20) % 2
    model = make(network(own), ridge=0.1).fit(X, y)
    gains = OWN if own else {"w_std": 2**0.5, "b_std": 0.0}
    explicit = make(network(False), ridge=0.1, **gains).fit(X, y)
    scores = [
        one.predict(X) if isinstance(one, ntkit.NTKRegressor) else one.decision_function(X) for one in (model, explicit)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-9, atol=1e-12)
    if own:
        with pytest.raises(InputError, match=r"w_std=1\.3, but w_std=1 is given. Leave w_std out"):
            make(network(True), w_std=1.0).fit(X, y)


@pytest.mark.parametrize("tune", ["auto", "evidence"])
def test_tuning_leaves_the_gains_of_a_module_alone(data: tuple[Array, Array], tune: str) -> None:
    X, y = data[0][:30], data[1][:30]
    model = ntkit.NTKRegressor(network(True), tune=tune).fit(X, y)
    x = torch.from_numpy(X)
    torch.testing.assert_close(model.kernel_(x), ntkit.infinite_width(network(False), **OWN).ntk(x))
    assert model.ridge_ > 0
    searched = ntkit.NTKRegressor(network(False), tune=tune).fit(X, y)
    assert searched.kernel_.limit.gains.w_std not in (None, 2**0.5)


@pytest.mark.parametrize("own", [True, False])
def test_gains_of_features_and_feature_machines(data: tuple[Array, Array], own: bool) -> None:
    X, y = data[0][:20], data[1][:20]
    gains = OWN if own else {"w_std": 2**0.5, "b_std": 0.0}
    features = [
        ntkit.NTKFeatures(net, 50, dtype="float64", **given).fit_transform(X)
        for net, given in ((network(own), {}), (network(False), gains))
    ]
    np.testing.assert_allclose(*features, rtol=1e-9, atol=1e-12)
    machines = [
        ntkit.RFMRegressor(kernel=net, iterations=1, **given).fit(X, y).predict(X)
        for net, given in ((network(own), {}), (network(False), gains))
    ]
    np.testing.assert_allclose(*machines, rtol=1e-7, atol=1e-9)


def test_a_source_is_what_the_parameters_describe() -> None:
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for which in ("ntk", "nngp"):
        source = read_source(which, network(False), None, 7, **OWN)
        expected = ntkit.infinite_width(network(False), **OWN)
        assert source.kernel is not None and source.limit is not None and source.which == which
        torch.testing.assert_close(source.kernel(x), getattr(expected, which)(x))
        torch.testing.assert_close(kernel_of(source.limit, source.which)(x), source.kernel(x), rtol=0, atol=0)
    default = read_source("ntk", None, (7, 1), 7).kernel
    assert default is not None and default(x[:, :, None]).shape == (5, 5)
    kernel = Laplace()
    assert (
        read_source(kernel, None, None, 7) == KernelSource(kernel)
        and read_source("precomputed", None, None, 7).kernel is None
    )
