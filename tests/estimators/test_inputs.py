"""What estimators take as X: flattened images, images as they are, sparse matrices, tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from tests.estimators.problems import Array, Laplace, regression_data
from torch import nn

import ntkit
from ntkit._src.estimators._inputs import has_candidates, listed_numbers
from ntkit.errors import InputError, InputTypeError


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return regression_data()


def test_images_come_flattened() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:120] / 16, y[:120]
    kernel = Laplace()
    flat = ntkit.NTKClassifier(kernel=Laplace()).fit(X[:80], y[:80])
    folded = ntkit.NTKClassifier(kernel=kernel, input_shape=(1, 8, 8)).fit(X[:80], y[:80])
    assert {shape[1:] for shape in kernel.shapes} == {(1, 8, 8)}
    np.testing.assert_allclose(folded.decision_function(X[80:]), flat.decision_function(X[80:]), atol=1e-12)
    default = ntkit.NTKClassifier(input_shape=(1, 8, 8), tune=None).fit(X[:80], y[:80])
    plain = ntkit.NTKClassifier(tune=None).fit(X[:80], y[:80])
    np.testing.assert_allclose(default.decision_function(X[80:]), plain.decision_function(X[80:]), atol=1e-10)


def test_convolutional_model_on_digits() -> None:
    X, y = load_digits(return_X_y=True)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
    model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(X[:200] / 16, y[:200])
    assert model.score(X[200:400] / 16, y[200:400]) > 0.9


def test_images_as_they_are() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
    images = X.reshape(-1, 1, 8, 8)
    flat = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(X[:200], y[:200])
    for given in (images, torch.from_numpy(images)):
        model = ntkit.NTKClassifier(net).fit(given[:200], y[:200])
        assert model.input_shape_ == (1, 8, 8) and model.n_features_in_ == 64
        scores, expected = model.decision_function(given[200:]), flat.decision_function(X[200:])
        np.testing.assert_allclose(scores, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(model.predict(X[200:]), flat.predict(X[200:]))
    with pytest.raises(InputError, match=r"shape of the inputs at fit, \(n, 1, 8, 8\). Got \(100, 8, 8, 1\)"):
        model.predict(images[200:].reshape(-1, 8, 8, 1))
    with pytest.raises(InputError, match="shape of input_shape"):
        ntkit.NTKClassifier(net, input_shape=(1, 64)).fit(images, y)
    with pytest.raises(InputError, match="two dimensions"):
        ntkit.NTKClassifier(kernel="precomputed").fit(images, y)


@pytest.mark.parametrize("form", ["csr_matrix", "coo_array", "csc_matrix"])
def test_sparse_rows(data: tuple[Array, Array], form: str) -> None:
    import scipy.sparse

    X, y = np.where(data[0] > 0.5, data[0], 0.0), data[1]
    sparse = getattr(scipy.sparse, form)(X)
    model = ntkit.NTKRegressor(ridge=0.1, b_std=0.1).fit(sparse, y)
    expected = ntkit.NTKRegressor(ridge=0.1, b_std=0.1).fit(X, y)
    np.testing.assert_allclose(model.predict(sparse), expected.predict(X), rtol=1e-12)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x.to("meta"), "hold values"),
        (lambda x: x.to_sparse(), "to_dense"),
        (lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8), "dequantize"),
    ],
)
def test_tensors_without_plain_values_are_refused(data: tuple[Array, Array], make: Any, message: str) -> None:
    with pytest.raises(InputTypeError, match=message):
        ntkit.NTKRegressor().fit(make(torch.from_numpy(data[0])), data[1])


def test_listed_numbers() -> None:
    assert listed_numbers("a", "auto", (1, 2)) == [1, 2]
    assert listed_numbers("a", 3, (), whole=True) == [3] and listed_numbers("a", np.array([0.5, 1]), ()) == [0.5, 1.0]
    cases: tuple[tuple[Any, dict[str, bool], type[Exception]], ...] = (
        ("best", {}, InputTypeError),
        ([], {}, InputError),
        (-1, {}, InputError),
        (0, {"positive": True}, InputError),
        (1.5, {"whole": True}, InputTypeError),
        ([True], {}, InputTypeError),
    )
    for given, options, error in cases:
        with pytest.raises(error, match="a must"):
            listed_numbers("a", given, **options)
    assert listed_numbers("a", torch.tensor([1.0, np.inf]), infinite=True) == [1.0, np.inf]
    assert has_candidates("auto") and has_candidates((1, 2)) and not has_candidates(0.5) and not has_candidates(None)
