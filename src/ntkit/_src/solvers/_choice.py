"""The choice of a method for a system: time and memory of each, estimated from measured rates before it starts."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import bytes_text, seconds_text
from ntkit._src.gram import DenseGram, GramOperator, StoredGram, free_disk
from ntkit.errors import MemoryLimitError

from ._blocked_cholesky import BlockedCholesky, cholesky_bytes, scratch_place
from ._centres import default_centres
from ._conjugate_gradients import CG, cg_bytes, default_rank
from ._eigenpro import EigenPro, eigenpro_bytes
from ._falkon import Falkon, falkon_bytes
from ._indefinite import Indefinite, indefinite_bytes
from ._method import Method, memory_limit
from ._nystrom import Nystrom, nystrom_bytes

_PATIENCE = 1800.0  # seconds after which an approximation is preferred to the exact solution
_CG_ITERATIONS, _FALKON_ITERATIONS, _EIGENPRO_EPOCHS = 60, 20, 20
_DISK_RATE = 5e8  # bytes read per second, unless measured


@dataclass(frozen=True)
class CostEstimate:
    """The estimated cost of a method: seconds from measured rates, bytes of memory and disk, and whether it is exact."""

    method: Method
    seconds: float
    memory: int
    disk: int
    exact: bool

    def __str__(self) -> str:
        disk = f" and {bytes_text(self.disk)} on disk" if self.disk else ""
        return f"{_shown(self.method)}: about {seconds_text(self.seconds)}, {bytes_text(self.memory)} of memory{disk}"


@dataclass(frozen=True)
class Rates:
    """Seconds per entry of the Gram matrix, and operations per second of matrix products in its dtype and in float64."""

    entry: float
    flops: float
    flops64: float


def choose(gram: GramOperator, outputs: int, memory: int | None = None) -> tuple[CostEstimate, str]:
    """Choose a method that fits, an exact one if that takes at most half an hour, and say why; MemoryLimitError if none fits."""
    limit, rates, m = memory_limit(memory), measure(gram), default_centres(gram.shape[0])
    methods = BlockedCholesky(in_memory=True), BlockedCholesky(in_memory=False), CG(), Nystrom(m), Falkon(m)
    found = [one for method in methods if (one := estimate(method, gram, outputs, limit, rates)) is not None]
    room = free_disk(scratch_place(gram))
    fitting = [one for one in found if one.memory <= limit and one.disk <= room]
    if not fitting:
        raise MemoryLimitError(
            f"no method for {gram.shape[0]} rows fits into {bytes_text(limit)} of memory and {bytes_text(room)} of disk:"
            "\n  "
            + "\n  ".join(map(str, found))
            + "\nUse fewer centres, Nystrom(n_centres=...), or a machine with more of either."
        )
    exact = min((one for one in fitting if one.exact), key=lambda one: one.seconds, default=None)
    if exact is not None and exact.seconds <= _PATIENCE:
        return exact, f"{exact}. It is exact and fits."
    best = min((one for one in fitting if not one.exact), key=lambda one: one.seconds, default=exact)
    assert best is not None
    why = f"The exact solution by {exact} takes longer than {seconds_text(_PATIENCE)}; ask for it by name."
    if exact is None:
        why = f"No exact method fits into {bytes_text(limit)} of memory and {bytes_text(room)} of disk."
    return best, f"{best}. {why}"


def estimate(
    method: Method, gram: GramOperator, outputs: int, limit: int, rates: Rates | None = None
) -> CostEstimate | None:
    """Return the estimated cost of one method; None for a method that is not of this package."""
    if not isinstance(method, (BlockedCholesky, Indefinite, CG, Nystrom, Falkon, EigenPro)):
        return None
    rates = measure(gram) if rates is None else rates
    n, size = gram.shape[0], gram.dtype.itemsize
    whole = n * n / 2 * rates.entry  # every entry once, by symmetry
    match method:
        case BlockedCholesky():
            seconds = whole + n**3 / 3 / rates.flops + 4 * n * n * outputs / rates.flops64
            held = cholesky_bytes(n, size)
            if held <= limit if method.in_memory is None else method.in_memory:
                return CostEstimate(method, seconds, held, 0, True)
            width = 1024
            reads = n**3 / 6 / width * size / _DISK_RATE
            return CostEstimate(method, seconds + reads, 4 * n * width * size, n * n // 2 * size, True)
        case Indefinite():
            # Of an eigendecomposition, which it may need; half of the work is not in matrix products.
            seconds = whole + 10 * n**3 / rates.flops64 + 4 * n * n * outputs / rates.flops64
            return CostEstimate(method, seconds, indefinite_bytes(n), 0, True)
        case CG():
            rank = default_rank(n) if method.rank is None else method.rank
            seconds = rank * n * rates.entry + _CG_ITERATIONS * (whole + 2 * n * n * outputs / rates.flops64)
            return CostEstimate(method, seconds, cg_bytes(gram, rank, outputs), 0, True)
        case Nystrom() | Falkon():
            m = _centres(method, n)
            if isinstance(method, Nystrom):
                seconds = n * m * rates.entry + 2 * n * m * m / rates.flops64
                return CostEstimate(method, seconds, nystrom_bytes(m, outputs), 0, False)
            seconds = _FALKON_ITERATIONS * (n * m * rates.entry + 4 * n * m * outputs / rates.flops64)
            return CostEstimate(method, seconds + 2 * m**3 / rates.flops64, falkon_bytes(m, outputs), 0, False)
        case EigenPro():
            sample = min(n, 2000) if method.sample is None else method.sample
            memory = eigenpro_bytes(n, sample, sample // 10, max(1, (1 << 28) // (16 * n)), outputs)
            return CostEstimate(method, 2 * _EIGENPRO_EPOCHS * whole, memory, 0, True)
        case _:
            raise AssertionError(type(method).__name__)


def measure(gram: GramOperator) -> Rates:
    """Measure the speed of kernel entries and of matrix products, in a few tenths of a second."""
    rows = min(gram.shape[0], 128)
    seconds = 0.0
    while True:
        start = time.perf_counter()
        gram.block(slice(0, rows), slice(0, rows))
        seconds = time.perf_counter() - start
        if seconds > 0.05 or rows >= min(gram.shape[0], 4096) or isinstance(gram, DenseGram):
            break
        rows = min(2 * rows, gram.shape[0])
    entry = seconds / rows**2
    if isinstance(gram, StoredGram):  # a tile is read whole
        entry = gram.dtype.itemsize / _DISK_RATE
    return Rates(entry, _flops(gram.dtype), _flops(torch.float64))


def _flops(dtype: torch.dtype) -> float:
    size = 768
    a: Tensor = torch.ones(size, size, dtype=dtype)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def _centres(method: Nystrom | Falkon, n: int) -> int:
    if isinstance(method.centres, Tensor):
        return len(method.centres)
    return default_centres(n) if method.n_centres is None else method.n_centres


def _shown(method: Method) -> str:
    match method:
        case BlockedCholesky():
            return f"Cholesky factorisation {'on disk' if method.in_memory is False else 'in memory'}"
        case Nystrom() | Falkon():
            m = len(method.centres) if isinstance(method.centres, Tensor) else method.n_centres
            return f"{type(method).__name__}({m})"
        case _:
            return f"{type(method).__name__}()"
