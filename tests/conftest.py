from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def coarse_pictures() -> Iterator[None]:
    """Draw figures with few pixels and without arranging their parts, which takes longer than the numbers in them."""
    from matplotlib.figure import Figure

    savefig = Figure.savefig

    def coarse(self: Figure, *arguments: Any, **options: Any) -> None:
        self.set_layout_engine("none")
        savefig(self, *arguments, **{**options, "dpi": 20})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", coarse)
        yield


@pytest.fixture
def free_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Call it with a number of bytes: as many are free then, and even the smallest matrix asks for its own."""

    def let(free: int) -> None:
        monkeypatch.setattr("ntkit._src.common._memory._SMALL", 0)
        monkeypatch.setattr("ntkit._src.common._memory.available_bytes", lambda device: free)

    return let
