"""Checks of single arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ntkit._src.common import check_choice, check_integer, check_number
from ntkit.errors import InputError, InputTypeError


@pytest.mark.parametrize("value", [1, 0.5, np.float32(0.25), np.int64(3)])
def test_numbers_of_python_and_numpy_pass(value):
    assert check_number("a", value, 0, 3) == float(value)


@pytest.mark.parametrize(
    ("value", "limits", "error", "says"),
    [
        ("1", {}, InputTypeError, "a must be a number. Got '1' of type str."),
        (True, {}, InputTypeError, "of type bool"),
        (math.nan, {}, InputError, "a must be finite. Got nan."),
        (math.inf, {"least": 0}, InputError, "finite and at least 0. Got inf"),
        (0, {"positive": True}, InputError, "finite and positive. Got 0."),
        (-1, {"positive": True}, InputError, "finite and positive"),
        (2, {"least": 0, "most": 1}, InputError, "finite and at least 0 and at most 1. Got 2."),
    ],
)
def test_other_numbers_are_refused(value, limits, error, says):
    with pytest.raises(error, match=says):
        check_number("a", value, **limits)


def test_integers():
    assert check_integer("n", np.int32(4), 4) == 4 and type(check_integer("n", np.int32(4))) is int
    with pytest.raises(InputError, match="n must be at least 4. Got 3."):
        check_integer("n", 3, 4)
    for value in (3.0, True, "3"):
        with pytest.raises(InputTypeError, match=f"an integer. Got {value!r} of type"):
            check_integer("n", value)


def test_choices():
    check_choice("mode", "b", ("a", "b"))
    with pytest.raises(InputError, match="mode must be one of 'a', 'b', or a function. Got 'c'."):
        check_choice("mode", "c", ("a", "b"), ", or a function")
