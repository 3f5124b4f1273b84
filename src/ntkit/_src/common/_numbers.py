"""Checks of times, numbers of steps, targets and starting values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._shown import shown

__all__ = ["Numbers", "as_columns", "check_steps", "check_times", "listed"]

Numbers = float | Sequence[float] | Tensor | NDArray[Any]
"""One number, or several in a sequence, a tensor or an array."""


def check_times(t: Numbers, name: str = "t") -> tuple[list[float], bool]:
    """Return the times as a list, and whether a single number was passed."""
    values, single = listed(t, name, "a time")
    for value in values:
        if not value >= 0:
            raise InputError(f"{name} must not be negative or NaN (infinity is training to the end). Got {value}.")
    return values, single


def check_steps(steps: Numbers) -> tuple[list[int], bool]:
    """Return the numbers of steps as a list, and whether a single number was passed."""
    values, single = listed(steps, "steps", "a whole number of steps")
    for value in values:
        if not (math.isfinite(value) and value >= 0 and value == int(value)):
            raise InputError(f"steps must be whole numbers from 0 on. Got {value}.")
    return [int(value) for value in values], single


def listed(given: Numbers, name: str, meaning: str) -> tuple[list[float], bool]:
    """Return one number or several as a list, and whether a single number was passed."""
    value: Any = given.tolist() if isinstance(given, (Tensor, np.ndarray)) else given
    single = not isinstance(value, Sequence)
    values = [value] if single else list(value)
    if not values:
        raise InputError(f"{name} must have at least one value. Got an empty sequence.")
    for one in values:
        if isinstance(one, (bool, str)) or not hasattr(one, "__float__"):
            raise InputTypeError(f"{name} must be {meaning} or a sequence of them. Got {shown(given)}.")
    return [float(one) for one in values], single


def as_columns(values: Tensor) -> Tensor:
    """Return (n,) as (n, 1), and (n, k) unchanged."""
    return values if values.ndim == 2 else values[:, None]
