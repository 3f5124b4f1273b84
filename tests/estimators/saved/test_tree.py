from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from ntkit._src.estimators.saved._tree import Decoder, Encoder
from ntkit.errors import InputError

VALUES = [
    None, True, 3, -0.5, "text", [1, [2.0]], (1, "a"), {"a": 1, 2: (3,)}, slice(1, 4), float, np.float64, torch.float32,
    np.dtype("float32"), {}, [],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_come_back_through_json(value):
    encode = Encoder(None)
    tree = json.loads(json.dumps(encode(value), allow_nan=False))
    found = Decoder(encode.arrays, None)(tree)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_lacks(value):
    encode = Encoder(None)
    found = Decoder({}, None)(json.loads(json.dumps(encode(value), allow_nan=False)))
    assert found == value or (math.isnan(found) and math.isnan(value))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.array(["a", "bc"]),
        np.array(["a", None, 2.5], dtype=object),
        np.array(1.5),
        np.float32(2.5),
        np.array([True, False]),
        np.empty((0, 3)),
    ],
    ids=repr,
)
def test_arrays_come_back(array):
    encode = Encoder(None)
    found = Decoder(encode.arrays, None)(json.loads(json.dumps(encode(array))))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype and type(found) is type(array)
    assert all(one.dtype != object for one in encode.arrays.values())


def test_tensors_come_back():
    encode = Encoder(None)
    found = Decoder(encode.arrays, None)(encode(torch.arange(3.0)))
    assert torch.equal(found, torch.arange(3.0))


@pytest.mark.parametrize("value", [lambda: 1, print, set, object(), {1, 2}, np.random.default_rng(0)])
def test_what_is_not_listed_is_refused(value):
    with pytest.raises(InputError, match="a model file holds"):
        Encoder(None)(value)


@pytest.mark.parametrize(
    "tree",
    [{"class": "Popen", "state": {}}, {"function": "system"}, {"type": "int"}, {"other": 1}, {"a": 1, "b": 2}, {}],
)
def test_trees_that_name_anything_else_are_refused(tree):
    with pytest.raises((KeyError, ValueError)):
        Decoder({}, None)(tree)
