from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ntkit._src.common import as_columns, check_steps, check_times, listed
from ntkit.errors import InputError, InputTypeError


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
