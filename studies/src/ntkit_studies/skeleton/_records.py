"""Frozen dataclasses as JSON and back: values that do not have the declared types are refused."""

from __future__ import annotations

import json
import math
import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ntkit.errors import InputError, InputTypeError

__all__ = ["canonical", "decode", "encode", "record_lines", "rounded"]

T = TypeVar("T")


def encode(value: object) -> Any:
    """Return plain JSON values: dataclasses as objects, tuples as arrays, lists as arrays where NaN is a gap, None.

    Raises
    ------
    InputError
        If a number is not finite: JSON has none, and a missing number is None.
    InputTypeError
        If a value is of another kind.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise InputError(f"a result must be finite numbers, or None. Got {value}.")
            return float(value)
        case list():
            return [None if isinstance(one, float) and math.isnan(one) else encode(one) for one in value]
        case tuple():
            return [encode(one) for one in value]
        case dict():
            return {str(key): encode(one) for key, one in value.items()}
    if is_dataclass(value):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    raise InputTypeError(
        f"a record may hold numbers, strings, tuples, dictionaries and dataclasses. Got {type(value).__name__}."
    )


def decode(kind: type[T] | types.UnionType, value: object) -> T:
    """Read plain JSON values as a type: the reverse of :func:`encode`.

    Raises
    ------
    InputError
        If the values have another form.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Cell:
    ...     width: int
    ...     classes: tuple[int, int] | None = None
    >>> decode(Cell, {"width": 8, "classes": [3, 9]})
    Cell(width=8, classes=(3, 9))
    """
    found: T = _decode(kind, value)
    return found


def canonical(value: object) -> str:
    """Return one text for equal values: the key under which a record is found."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"))


def rounded(value: Any) -> Any:
    """Round the numbers of JSON values to thirteen significant digits; whole ones, such as counts, stay exact.

    Examples
    --------
    >>> rounded({"error": [0.12345678901234567, 1234567891011.0, 3]})
    {'error': [0.1234567890123, 1234567891011.0, 3]}
    """
    match value:
        case float():
            return value if value.is_integer() else float(f"{value:.13g}")
        case list():
            return [rounded(one) for one in value]
        case dict():
            return {key: rounded(one) for key, one in value.items()}
    return value


def record_lines(content: dict[str, Any], records: str = "") -> str:
    """Return a JSON object with one entry per line, and one line per record in the list named ``records``.

    Examples
    --------
    >>> print(record_lines({"seed": 0, "cells": [{"n": 1}, {"n": 2}]}, "cells"))
    {
    "seed": 0,
    "cells": [
    {"n": 1},
    {"n": 2}
    ]
    }
    """
    entries = []
    for name, value in content.items():
        text = "[\n" + ",\n".join(map(_dump, value)) + "\n]" if name == records and value else _dump(value)
        entries.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _decode(kind: Any, value: Any) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _first_that_fits(parts, value)
    if origin is Literal:
        return value if value in parts else _refuse(kind, value)
    if origin is tuple:
        if not isinstance(value, list):
            _refuse(kind, value)
        if len(parts) == 2 and parts[1] is Ellipsis:
            return tuple(_decode(parts[0], one) for one in value)
        if len(parts) != len(value):
            _refuse(kind, value)
        return tuple(_decode(part, one) for part, one in zip(parts, value, strict=True))
    if origin is list:
        if not isinstance(value, list):
            _refuse(kind, value)
        return [math.nan if one is None and parts[0] is float else _decode(parts[0], one) for one in value]
    if origin is dict:
        if not isinstance(value, dict):
            _refuse(kind, value)
        return {key: _decode(parts[1], one) for key, one in value.items()}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or set(value) != {field.name for field in fields(kind)}:
            _refuse(kind, value)
        make: Any = kind
        return make(**{name: _decode(hints[name], one) for name, one in value.items()})
    return _plain(kind, value)


def _plain(kind: Any, value: Any) -> Any:
    if kind is types.NoneType and value is None:
        return None
    if kind is float and type(value) in (int, float) and math.isfinite(value):
        return float(value)
    if kind in (bool, int, str) and type(value) is kind:
        return value
    return _refuse(kind, value)


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    for kind in kinds:
        try:
            return _decode(kind, value)
        except ValueError:
            continue
    return _refuse(kinds, value)


def _refuse(kind: Any, value: Any) -> Any:
    raise InputError(f"expected {getattr(kind, '__name__', kind)}. Got {value!r:.80}.")
