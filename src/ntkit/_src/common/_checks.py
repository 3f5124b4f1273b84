"""Checks of single arguments: a number, an integer, one of several words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real

from ntkit.errors import InputError, InputTypeError

from ._shown import shown

__all__ = ["check_choice", "check_integer", "check_number"]


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf, *, positive: bool = False
) -> float:
    """Return a finite number from ``least`` to ``most``, above zero if ``positive``.

    Raises
    ------
    InputTypeError
        Not a number (a boolean is none).
    InputError
        NaN, infinite or out of range.
    """
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
    """Return an integer of at least ``least``; a boolean is none.

    Raises
    ------
    InputTypeError
        Not an integer.
    InputError
        Below ``least``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(f"{name} must be an integer. Got {shown(value)} of type {type(value).__name__}.")
    if least is not None and value < least:
        raise InputError(f"{name} must be at least {least}. Got {value}.")
    return int(value)


def check_choice(name: str, value: object, choices: Iterable[str], instead: str = "") -> None:
    """Refuse a value that is none of the words; ``instead`` names what else is allowed, as in ", or a function".

    Raises
    ------
    InputError
        The message lists the words.
    """
    words = list(choices)
    if value not in words:
        raise InputError(f"{name} must be one of {', '.join(map(repr, words))}{instead}. Got {shown(value)}.")
