"""The walk in docs/architecture.md: its files are those that a call enters, in that order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest
import torch
from tests.cases import mlp

import ntkit

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
SOURCES = f"{Path('ntkit', '_src')}/"


def files_entered(engine: str) -> list[str]:
    """Files of the implementation in the order in which a call first enters one of their functions."""
    net = mlp(3, 8, 1)
    x = torch.eye(3)
    ntkit.infinite_width(net).ntk(x, engine=engine)  # what is imported now runs no function later
    entered: dict[str, None] = {}

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and SOURCES in frame.f_code.co_filename:
            entered.setdefault(frame.f_code.co_filename.rsplit(SOURCES, 1)[1].replace("\\", "/"))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        ntkit.infinite_width(net).ntk(x, engine=engine)
    finally:
        sys.setprofile(before)
    return list(entered)


@pytest.fixture(scope="module")
def section() -> str:
    return PAGE.read_text(encoding="utf-8").split("## A walk through one call")[1].split("\n## ")[0]


def test_the_walk_follows_the_call(section: str) -> None:
    walk = re.findall(r"^\d+\. `([\w/.]+)`:", section, re.MULTILINE)
    entered = files_entered("reference")
    assert 8 <= len(walk) <= 12
    assert [name for name in entered if name in walk] == walk


def test_the_native_engine_takes_the_place_of_the_last_files(section: str) -> None:
    named = re.findall(r"`(native/[\w.]+)`", section)
    entered = files_entered("native")
    assert named and [name for name in entered if name in named] == named
    assert "rules/_engine.py" not in entered
