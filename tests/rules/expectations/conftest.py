"""Tests build their tables: nothing that an earlier run stored may stand in for them."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_stored_tables(monkeypatch):
    monkeypatch.setenv("NTKIT_CACHE_DIR", "")
