"""Memory is asked for before it is used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit._src.common import _memory, available_bytes
from ntkit.errors import MemoryLimitError
from ntkit.extending import check_gram_memory


def test_says_n_the_bytes_the_largest_n_and_what_to_do(free_memory: Callable[[int], None]) -> None:
    free_memory(int(12e9))
    with pytest.raises(MemoryLimitError) as caught:
        check_gram_memory(50_000, 50_000, torch.float32, matrices=2, what="a fit")
    message = str(caught.value)
    for part in ("n = 50,000", "20.0 GB", "12.0 GB are free", "38,729", "2 matrices", "block of rows"):
        assert part in message
    assert "float32 needs half" not in message and isinstance(caught.value, MemoryError)
    check_gram_memory(38_729, 38_729, torch.float32, matrices=2)
    with pytest.raises(MemoryLimitError, match="float32 needs half of it"):
        check_gram_memory(50_000, 50_000, torch.float64)
    with pytest.raises(MemoryLimitError, match="The most rows that fit are 30,000"):
        check_gram_memory(40_000, 50_000, torch.float64)


def test_the_kernel_itself_asks_at_once() -> None:
    """A million rows need terabytes: no machine of today holds that, and nothing is computed."""
    limit = ntkit.infinite_width(mlp(1, 4, 1))
    rows = torch.ones(1, 1, dtype=torch.float64).expand(10_000_000, 1)
    for call in (limit.ntk, limit.nngp, limit.both):
        with pytest.raises(MemoryLimitError, match=r"n = 10,000,000"):
            call(rows)


def test_the_empirical_kernel_asks_too(free_memory: Callable[[int], None]) -> None:
    net, x = torch.nn.Linear(3, 2).double(), torch.ones(10, 3, dtype=torch.float64)
    free_memory(8 * 10 * 10)
    ntkit.empirical(net).ntk(x)
    free_memory(8 * 10 * 10 - 1)
    for call, rows in ((ntkit.empirical(net).ntk, x), (ntkit.empirical(net, output="full").ntk, x[:5])):
        with pytest.raises(MemoryLimitError, match="n = 10 .*largest n that fits is 9"):
            call(rows)


def test_limits_of_the_system_and_of_a_container(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = available_bytes("cpu")
    assert free is not None and free > 2**20
    limit, used = tmp_path / "max", tmp_path / "current"
    monkeypatch.setattr(_memory, "_CONTROL_GROUPS", ((str(limit), str(used)),))
    assert available_bytes() == pytest.approx(free, rel=0.5)  # no such files
    limit.write_text("max\n")
    used.write_text("5\n")
    assert available_bytes() == pytest.approx(free, rel=0.5)
    limit.write_text("1000\n")
    assert available_bytes() == 995
    assert available_bytes("meta") is None
