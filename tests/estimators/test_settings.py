"""Parameters of the estimators, explained where they make no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.estimators.problems import Array, Laplace, regression_data
from torch import nn

import ntkit
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
        ({"ridge": -0.1}, InputError, r"not negative"),
        ({"ridge": "0"}, InputTypeError, r"number"),
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
