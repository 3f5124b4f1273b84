from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

import pytest

from ntkit.errors import InputError, InputTypeError
from ntkit_studies.skeleton._records import canonical, decode, encode


@dataclass(frozen=True)
class Inner:
    a: int
    b: float | None


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    rows: tuple[tuple[float, ...], ...]
    pair: tuple[int, str]
    by_name: dict[str, tuple[float, float] | None]
    kind: Literal["x", "y"]
    flag: bool


@dataclass(frozen=True)
class Empty:
    pass


EXAMPLE = Outer("n", Inner(3, None), ((0.1, 1e300), ()), (1, "z"), {"k": (1.0, 2.0), "l": None}, "y", True)


def test_what_is_written_comes_back_with_its_types():
    again = decode(Outer, json.loads(json.dumps(encode(EXAMPLE))))
    assert again == EXAMPLE
    assert isinstance(again.rows, tuple) and isinstance(again.by_name["k"], tuple)
    assert type(decode(Inner, {"a": 1, "b": 2}).b) is float


def test_unions_are_told_apart_by_their_fields():
    for one in (EXAMPLE, Inner(1, 2.0), Empty()):
        assert decode(Empty | Inner | Outer, encode(one)) == one


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Inner, {"a": 1}),
        (Inner, {"a": 1, "b": 2.0, "c": 3}),
        (Inner, {"a": 1.5, "b": 2.0}),
        (Inner, {"a": True, "b": 2.0}),
        (Inner, {"a": 1, "b": "2"}),
        (Inner, [1, 2.0]),
        (tuple[int, int], [1]),
        (tuple[float, ...], 1.0),
        (dict[str, float], [1.0]),
        (Literal["x"], "y"),
        (float, math.nan),
        (str, None),
    ],
)
def test_another_form_is_refused(kind, value):
    with pytest.raises(InputError, match="expected"):
        decode(kind, value)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(InputError, match="finite numbers, or None"):
        encode(Inner(1, value))


def test_gaps_of_lists_are_read_as_nan():
    written = json.loads(json.dumps(encode([1.0, math.nan, 3.0])))
    assert written == [1.0, None, 3.0]
    found = decode(list[float], written)
    assert found[0] == 1.0 and math.isnan(found[1]) and decode(list[list[float]], [[1], []]) == [[1.0], []]
    with pytest.raises(ValueError, match="expected"):
        decode(list[int], [None])
    with pytest.raises(ValueError, match="expected"):
        decode(list[float], 1.0)
    with pytest.raises(InputError, match="finite"):
        encode([math.inf])


def test_other_objects_are_refused():
    with pytest.raises(InputTypeError, match="Got object"):
        encode(object())


def test_equal_values_have_one_text():
    assert canonical({"b": 1, "a": (1, 2)}) == canonical({"a": [1, 2], "b": 1}) == '{"a":[1,2],"b":1}'
