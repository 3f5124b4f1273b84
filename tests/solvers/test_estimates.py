"""What each method would take, counted by hand from given rates, and what is chosen by it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram, KernelGram
from ntkit._src.solvers import _choice
from ntkit._src.solvers._blocked_cholesky import cholesky_bytes
from ntkit._src.solvers._centres import default_centres
from ntkit._src.solvers._choice import CostEstimate, Rates, choose, estimate
from ntkit._src.solvers._conjugate_gradients import default_rank
from ntkit._src.solvers._eigenpro import eigenpro_bytes
from ntkit._src.solvers._falkon import falkon_bytes
from ntkit._src.solvers._nystrom import nystrom_bytes
from ntkit.errors import MemoryLimitError
from ntkit.solvers import CG, BlockedCholesky, EigenPro, Falkon, Nystrom

ENTRY, FLOPS, FLOPS64 = 1e-6, 1e9, 2.5e8
RATES = Rates(ENTRY, FLOPS, FLOPS64)


class _Kernel(ntkit.Kernel):
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return x1 @ (x1 if x2 is None else x2).T

    def diag(self, x: Tensor) -> Tensor:
        return (x * x).sum(1)


def _gram(n: int) -> KernelGram:
    return KernelGram(_Kernel(), torch.ones(1, 1).expand(n, 1))  # float32


@pytest.mark.parametrize(("n", "outputs"), [(1000, 1), (30_000, 7)])
def test_seconds_and_bytes_by_hand(n: int, outputs: int) -> None:
    gram, whole = _gram(n), n * n / 2 * ENTRY
    factor = whole + n**3 / 3 / FLOPS + 4 * n * n * outputs / FLOPS64
    inside = estimate(BlockedCholesky(in_memory=True), gram, outputs, 0, RATES)
    assert inside == CostEstimate(inside.method, pytest.approx(factor), n * n * 4 + 3 * n * 1024 * 4, 0, True)
    outside = estimate(BlockedCholesky(in_memory=False), gram, outputs, 10**18, RATES)
    reads = n**3 / 6 / 1024 * 4 / 5e8
    assert outside == CostEstimate(
        outside.method, pytest.approx(factor + reads), 4 * n * 1024 * 4, n * n // 2 * 4, True
    )
    limit = cholesky_bytes(n, 4)
    assert estimate(BlockedCholesky(), gram, outputs, limit, RATES).disk == 0
    assert estimate(BlockedCholesky(), gram, outputs, limit - 1, RATES).disk > 0
    rank = default_rank(n)
    found = estimate(CG(), gram, outputs, 0, RATES)
    assert found.seconds == pytest.approx(rank * n * ENTRY + 60 * (whole + 2 * n * n * outputs / FLOPS64))
    assert found.memory == 8 * n * (rank + 6 * outputs) + 2 * gram.plan.size**2 * 4 and found.exact and not found.disk
    assert estimate(CG(rank=rank + 50), gram, outputs, 0, RATES).memory - found.memory == 8 * n * 50
    for m in (50, default_centres(n)):
        chosen = None if m != 50 else m
        found = estimate(Nystrom(chosen), gram, outputs, 0, RATES)
        assert found.seconds == pytest.approx(n * m * ENTRY + 2 * n * m * m / FLOPS64)
        assert found.memory == nystrom_bytes(m, outputs) and not found.exact and not found.disk
        found = estimate(Falkon(chosen), gram, outputs, 0, RATES)
        assert found.seconds == pytest.approx(20 * (n * m * ENTRY + 4 * n * m * outputs / FLOPS64) + 2 * m**3 / FLOPS64)
        assert found.memory == falkon_bytes(m, outputs) and not found.exact
    found = estimate(EigenPro(), gram, outputs, 0, RATES)
    sample = min(n, 2000)
    assert found.seconds == pytest.approx(40 * whole) and found.exact
    assert found.memory == eigenpro_bytes(n, sample, sample // 10, max(1, 2**28 // (16 * n)), outputs)
    assert estimate(Nystrom(centres=torch.arange(30)), gram, outputs, 0, RATES).memory == nystrom_bytes(30, outputs)


def test_sizes_that_methods_choose() -> None:
    assert [default_rank(n) for n in (5, 20, 100, 10_000)] == [5, 20, 30, 300]
    assert [default_centres(n) for n in (50, 1000, 10_000, 250_000, 500_000, 10**7)] == [
        50,
        1000,
        2000,
        2000,
        1414,
        1000,
    ]
    block = falkon_bytes(0, 0) // 3
    assert falkon_bytes(10, 2) == 8 * (300 + 200) + 3 * block and nystrom_bytes(10, 2) == 8 * (400 + 40) + 4 * block
    assert eigenpro_bytes(100, 20, 3, 7, 2) == 8 * (60 + 1400 + 600 + 280)


def test_choice_by_time_memory_and_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact within half an hour, else the fastest approximation; of exact methods the fastest that fits."""
    n = 20_000
    room = {"disk": 10**15}
    monkeypatch.setattr(_choice, "free_disk", lambda path: room["disk"])

    def chosen(entry: float, memory: int, flops: float = 1e11) -> tuple[CostEstimate, str]:
        monkeypatch.setattr(_choice, "measure", lambda gram: Rates(entry, flops, flops))
        return choose(_gram(n), 1, memory)

    best, why = chosen(1e-9, 10**11, flops=1e13)
    assert best.method == BlockedCholesky(in_memory=True) and why.endswith("It is exact and fits.")
    best, _ = chosen(1e-9, cholesky_bytes(n, 4) - 1, flops=1e13)
    assert best.exact and best.method != BlockedCholesky(in_memory=True)
    # every entry takes 2e8 entry seconds: at 8.9e-6 just within half an hour, at 9.1e-6 beyond
    assert chosen(8.5e-6, 10**11)[0].exact
    best, why = chosen(9.1e-6, 10**11)
    assert not best.exact and "takes longer than" in why and "ask for it by name" in why
    room["disk"] = 0
    least = min(nystrom_bytes(default_centres(n), 1), falkon_bytes(default_centres(n), 1))
    monkeypatch.setattr(_choice, "default_rank", lambda n: 10**6)  # conjugate gradients out of reach
    best, why = chosen(1e-9, least)
    assert not best.exact and best.memory == least and "No exact method fits" in why
    with pytest.raises(MemoryLimitError, match="no method for 20000 rows"):
        chosen(1e-9, least - 1)


def test_dense_matrices_are_measured_once() -> None:
    calls = []

    class Counted(DenseGram):
        def block(self, rows: slice, columns: slice) -> Tensor:
            calls.append((rows, columns))
            return super().block(rows, columns)

    rates = _choice.measure(Counted(torch.eye(300)))
    assert calls == [(slice(0, 128), slice(0, 128))]
    assert rates.entry > 0 and rates.flops > 1e6 and rates.flops64 > 1e6


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            BlockedCholesky(in_memory=False),
            "Cholesky factorisation on disk: about 2.0 s, 1.0 MB of memory and 3.0 MB on disk",
        ),
        (BlockedCholesky(), "Cholesky factorisation in memory: about"),
        (Falkon(12), "Falkon(12): about"),
        (Nystrom(centres=torch.arange(3)), "Nystrom(3): about"),
        (CG(), "CG(): about"),
    ],
)
def test_shown(method: ntkit.solvers.Method, text: str) -> None:
    disk = 3_000_000 if "disk" in text else 0
    assert str(CostEstimate(method, 2.0, 1_000_000, disk, True)).startswith(text)
