"""Checks of single arguments: numbers, words, times, shapes, generators."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ntkit._src.common import as_columns, check_input_shape, check_steps, check_times, fold_rows, listed
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import check_choice, check_integer, check_number


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


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2, ([2.0], True)),
        (torch.tensor(0.5), ([0.5], True)),
        (np.float64(3.0), ([3.0], True)),
        ([0, math.inf], ([0.0, math.inf], False)),
        (torch.tensor([1.0]), ([1.0], False)),
        (np.array([1, 2]), ([1.0, 2.0], False)),
    ],
)
def test_times(given: object, expected: tuple[list[float], bool]) -> None:
    assert check_times(given) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [-1e-300, math.nan])
def test_no_times(bad: float) -> None:
    with pytest.raises(InputError, match="s must not be negative"):
        check_times([1.0, bad], "s")


def test_steps() -> None:
    assert check_steps([0, 3.0]) == ([0, 3], False)
    assert check_steps(7) == ([7], True)
    for bad in (-1, 0.5, math.inf, math.nan):
        with pytest.raises(InputError, match="whole numbers from 0 on"):
            check_steps(bad)


@pytest.mark.parametrize("bad", [True, "3", [1, "2"], [[1.0]], None])
def test_no_numbers(bad: object) -> None:
    with pytest.raises(InputTypeError, match="t must be a time or a sequence"):
        listed(bad, "t", "a time")  # type: ignore[arg-type]


def test_empty() -> None:
    with pytest.raises(InputError, match="at least one value"):
        listed([], "t", "a time")


def test_columns() -> None:
    assert as_columns(torch.ones(3)).shape == (3, 1)
    matrix = torch.ones(3, 2)
    assert as_columns(matrix) is matrix


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ((3, 4), (3, 4)), ([2], (2,)), ((2.0, 5), (2, 5)), (torch.Size([1, 6]), (1, 6))],
)
def test_shapes(given: object, expected: tuple[int, ...] | None) -> None:
    assert check_input_shape(given) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [(2.5,), (True, 2), ("a",), 3, (None,), (2, float("nan"))])
def test_not_whole_numbers(given: object) -> None:
    with pytest.raises(InputTypeError, match="tuple of integers"):
        check_input_shape(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [(), (0,), (3, -1), (1, 0, 2)])
def test_not_positive(given: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="all positive"):
        check_input_shape(given)


def test_rows_fold_in_the_order_of_reshape() -> None:
    rows = torch.arange(24.0).reshape(2, 12)
    assert fold_rows(rows, None) is rows
    assert torch.equal(fold_rows(rows, (3, 2, 2))[1, 2], torch.tensor([[20.0, 21.0], [22.0, 23.0]]))
    with pytest.raises(InputError, match="rows of 10 features. Got 12"):
        fold_rows(rows, (5, 2))
