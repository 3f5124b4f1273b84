"""How much memory is free, checked before a large matrix is computed."""

from __future__ import annotations

import os
import sys
from math import isqrt
from pathlib import Path

import torch

from ntkit.errors import MemoryLimitError

from ._arguments import bytes_text

__all__ = ["available_bytes", "available_memory", "check_gram_memory", "check_memory"]

_SMALL = 2**28  # not worth checking: any machine that runs torch has 256 MiB
_SHARE = 0.9  # share of the available memory that one allocation may take; the rest is for what is not counted
_CONTROL_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def available_bytes(device: torch.device | str = "cpu") -> int | None:
    """Return the bytes that a new tensor may take on a device, None if the system does not say."""
    # On Linux this is what the kernel reports as available, or less if a control group (a container) sets a limit; elsewhere
    # half of the physical memory; on a CUDA device what is free there plus what torch holds in reserve.
    place = torch.device(device)
    if place.type == "cuda":
        free, _ = torch.cuda.mem_get_info(place)
        return int(free) + torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    if place.type != "cpu":
        return None
    known = [found for found in (_from_system(), *map(_from_control_group, _CONTROL_GROUPS)) if found is not None]
    return min(known, default=None)


def available_memory() -> int:
    """Return the bytes that this process can still allocate; if the system does not say, more than any machine has."""
    found = available_bytes()
    return sys.maxsize if found is None else found


def check_memory(needed: int, what: str, instead: str, limit: int | None = None) -> None:
    """Refuse what does not fit into ``limit`` bytes or, if that is None, into nine tenths of the available memory."""
    allowed = int(_SHARE * available_memory()) if limit is None else limit
    if needed > allowed:
        raise MemoryLimitError(
            f"{what} takes {bytes_text(needed)} of memory, and {bytes_text(allowed)} can be used here. {instead}"
        )


def check_gram_memory(
    rows: int,
    columns: int,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    *,
    matrices: int = 1,
    what: str = "the kernel",
) -> None:
    """Refuse at once matrices (rows, columns) that would run out of memory after minutes of work.

    ``matrices`` of that size are held at the same time; a square one is taken to be K(X, X). The message, whose subject is
    ``what``, has n, the bytes needed and free, the largest n that fits, and what to do instead.
    """
    needed = matrices * rows * columns * dtype.itemsize
    if needed <= _SMALL:
        return
    free = available_bytes(device)
    if free is None or needed <= free:
        return
    square = rows == columns
    entries = free // (matrices * dtype.itemsize)
    fits = isqrt(entries) if square else entries // columns
    size = f"n = {rows:,}" if square else f"{rows:,} x {columns:,} points"
    several = "" if matrices == 1 else f" for {matrices} matrices of this size"
    halved = "" if dtype == torch.float32 else "float32 needs half of it; or "
    blocks = f"fit on at most {fits:,} points, or compute K(x[i:j], x) for a block of rows at a time."
    if not square:
        blocks = f"pass at most {fits:,} rows at a time."
    raise MemoryLimitError(
        f"{what} of {size} needs {needed / 1e9:.1f} GB in {dtype}{several}, and {free / 1e9:.1f} GB are free on {device}. "
        f"{'The largest n that fits is' if square else 'The most rows that fit are'} {fits:,}. Instead: {halved}{blocks}"
    )


def _from_system() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return None


def _from_control_group(files: tuple[str, str]) -> int | None:
    try:
        limit, used = (int(Path(name).read_text()) for name in files)
    except (OSError, ValueError):  # no such group, or no limit ("max")
        return None
    return max(0, limit - used)
