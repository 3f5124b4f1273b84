"""Checks of single arguments (numbers, words, times, shapes, generators), and values in messages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

__all__ = [
    "Numbers",
    "bytes_text",
    "check_choice",
    "check_generator",
    "check_input_shape",
    "check_input_size",
    "check_integer",
    "check_number",
    "check_ridge",
    "check_steps",
    "check_times",
    "listed",
    "seconds_text",
    "shown",
]

_LENGTH = 160  # characters of a message that one value may take


def shown(value: object) -> str:
    """Describe a value in a message: a tensor or array by shape and dtype, what is long by its type, the rest as Python does."""
    text = _written(value)
    if len(text) <= _LENGTH:
        return text
    size = f" of length {len(value)}" if isinstance(value, (str, list, tuple, set, frozenset, Mapping)) else ""
    return f"a {type(value).__name__}{size}"


def _written(value: object) -> str:
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0:
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of shape {tuple(value.shape)} and dtype {value.dtype}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_written(one)}' for key, one in value.items())}}}"
    if type(value) in (list, tuple):
        inside = ", ".join(map(_written, value))  # type: ignore[call-overload]
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)" if len(value) == 1 else f"({inside})"  # type: ignore[arg-type]
    return repr(value)


def bytes_text(count: float) -> str:
    """Format a number of bytes: 10.0 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def seconds_text(seconds: float) -> str:
    """Format a duration: 1.5 h."""
    for unit, least, size in (("days", 172_800, 86_400), ("h", 3600, 3600), ("min", 60, 60)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


Numbers = float | Sequence[float] | Tensor | NDArray[Any]
"""One number, or several in a sequence, a tensor or an array."""


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf, *, positive: bool = False
) -> float:
    """Return a finite number from ``least`` to ``most``, above zero if ``positive``; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name} must be a number. Got {shown(value)} of type {type(value).__name__}.")
    number = float(value)
    if not (math.isfinite(number) and least <= number <= most) or (positive and number <= 0):
        bounds = ["positive"] if positive else []
        bounds += [f"at least {least:g}"] if least > -math.inf else []
        bounds += [f"at most {most:g}"] if most < math.inf else []
        raise InputError(f"{name} must be {' and '.join(['finite', *bounds])}. Got {value}.")
    return number


def check_integer(name: str, value: object, least: int | None = None) -> int:
    """Return an integer of at least ``least``; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(f"{name} must be an integer. Got {shown(value)} of type {type(value).__name__}.")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}. Got {value}.")
    return int(value)


def check_choice(name: str, value: object, choices: Iterable[str], instead: str = "") -> None:
    """Refuse a value that is none of the words; ``instead`` names what else is allowed, as in ", or a function"."""
    words = list(choices)
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{name} must be one of {', '.join(map(repr, words))}{instead}. Got {shown(value)}.")


def check_ridge(ridge: float) -> float:
    """Return the ridge as a float; a tensor of one element is a number too."""
    if isinstance(ridge, bool) or not hasattr(ridge, "__float__"):
        raise InputTypeError(f"ridge must be a number. Got {shown(ridge)} of type {type(ridge).__name__}.")
    value = float(ridge)
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"ridge must be finite and not negative (it is relative to trace(K)/n). Got {value}.")
    return value


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


def check_input_shape(input_shape: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the shape of one input as a tuple of positive integers; None, for rows of features, is returned unchanged."""
    return None if input_shape is None else check_input_size(input_shape)


def check_input_size(input_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one input as a tuple of positive integers."""
    try:
        sizes = tuple(int(size) for size in input_shape if int(size) == size and not isinstance(size, bool))
        whole = len(sizes) == len(input_shape)
    except (TypeError, ValueError, RuntimeError):
        sizes, whole = (), False
    if not whole or not sizes or min(sizes) < 1:
        batch = isinstance(input_shape, (Tensor, np.ndarray)) and input_shape.ndim > 1
        raise (InputError if whole or batch else InputTypeError)(
            "input_shape must be a tuple of integers, at least one size, all positive: that of one input without its batch, such "
            f"as (784,) or (3, 32, 32). Got {shown(input_shape)}."
            + (" For a batch x write tuple(x.shape[1:])." if batch else "")
        )
    return sizes


def check_generator(generator: object) -> None:
    """Refuse anything but None or a generator on the CPU."""
    if generator is None:
        return
    if not isinstance(generator, torch.Generator):
        raise InputTypeError(
            f"generator must be a torch.Generator or None. Got {type(generator).__name__}. "
            "Write torch.Generator().manual_seed(0)."
        )
    if generator.device.type != "cpu":
        raise InputTypeError(f"generator must be on the CPU. Got one on {generator.device}. Write torch.Generator().")
