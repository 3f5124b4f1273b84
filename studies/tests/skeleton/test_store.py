from __future__ import annotations

import json

import pytest
from studies.tests.skeleton.toy import Cell, Product

from ntkit.errors import InputError
from ntkit_studies.skeleton._store import CellStore, Stored

FIRST, SECOND = Cell(1, 0), Cell(2, 0)


def opened(path):
    return CellStore(path, Cell, Product)


def stored(value=0.5):
    return Stored(Product(value, (0.1, 1 / 3)), 0.25)


def test_results_come_back(tmp_path):
    path = tmp_path / "cells.jsonl"
    store = opened(path)
    store.add("k", FIRST, stored())
    store.add("k", SECOND, stored(0.25))
    store.add("k", FIRST, stored(0.75))
    again = opened(path)
    assert again.get("k", FIRST) == stored(0.75)  # the last of two
    assert again.get("k", SECOND) == stored(0.25)
    assert again.get("other settings", FIRST) is None
    assert again.unreadable == 0


@pytest.mark.parametrize("length", [1, 20, 60])
def test_a_line_cut_off_is_left_aside(tmp_path, length):
    path = tmp_path / "cells.jsonl"
    opened(path).add("k", FIRST, stored())
    line = path.read_text()
    with path.open("a") as file:
        file.write(line[:length])
    again = opened(path)
    assert again.unreadable == 1
    assert again.get("k", FIRST) == stored()
    again.add("k", SECOND, stored())
    final = opened(path)
    assert final.get("k", SECOND) == stored()
    assert final.unreadable == 1


GOOD = {"key": "k", "cell": {"width": 3, "draw": 0}, "result": {"value": 1.0, "parts": [1.0]}, "seconds": 1.0}


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[1]",
        "{not json",
        json.dumps(GOOD | {"cell": {"width": 3}}),
        json.dumps(GOOD | {"result": {"value": "1", "parts": [1.0]}}),
        json.dumps(GOOD | {"result": {"value": 1.0, "parts": 1.0}}),
        json.dumps(GOOD | {"result": {"value": float("nan"), "parts": []}}),
        json.dumps(GOOD | {"seconds": None}),
        "\x00\x00\x00",
    ],
)
def test_a_damaged_line_between_others_is_left_aside(tmp_path, line):
    path = tmp_path / "cells.jsonl"
    opened(path).add("k", FIRST, stored())
    with path.open("a") as file:
        file.write(line + "\n")
    opened(path).add("k", SECOND, stored())
    store = opened(path)
    assert store.unreadable == 1
    assert store.get("k", FIRST) and store.get("k", SECOND) and store.get("k", Cell(3, 0)) is None


def test_another_file_is_not_written_to(tmp_path):
    path = tmp_path / "cells.jsonl"
    path.write_text("# Notes\n")
    with pytest.raises(InputError, match=r"not a store of results"):
        opened(path)
    assert path.read_text() == "# Notes\n"
