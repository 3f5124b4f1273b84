from __future__ import annotations

import sys

import pytest

from ntkit._src.plots import new_figure
from ntkit.errors import MissingDependencyError


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ntkit\[plot\]'"):
        new_figure()
