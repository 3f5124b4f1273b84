"""The free resources of the machine, and the formatting of sizes and times in messages."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from ntkit._src.common import available_bytes
from ntkit.errors import MemoryLimitError

__all__ = ["available_memory", "bytes_text", "check_memory", "free_disk", "seconds_text"]

_SHARE = 0.9  # share of the available memory that one allocation may take; the rest is for what is not counted


def available_memory() -> int:
    """Return the bytes that this process can still allocate; if the system does not say, more than any machine has.

    Examples
    --------
    >>> available_memory() > 0
    True
    """
    found = available_bytes()
    return sys.maxsize if found is None else found


def free_disk(path: Path) -> int:
    """Return the free bytes of the file system that holds a path, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def check_memory(needed: int, what: str, instead: str, limit: int | None = None) -> None:
    """Refuse what does not fit into ``limit`` bytes or, if that is None, into nine tenths of the available memory."""
    allowed = int(_SHARE * available_memory()) if limit is None else limit
    if needed > allowed:
        raise MemoryLimitError(
            f"{what} takes {bytes_text(needed)} of memory, and {bytes_text(allowed)} can be used here. {instead}"
        )


def bytes_text(count: float) -> str:
    """Format a number of bytes.

    Examples
    --------
    >>> bytes_text(10_000_000_000), bytes_text(512)
    ('10.0 GB', '512 bytes')
    """
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def seconds_text(seconds: float) -> str:
    """Format a duration.

    Examples
    --------
    >>> seconds_text(5400), seconds_text(90), seconds_text(0.5)
    ('1.5 h', '1.5 min', '0.5 s')
    """
    for unit, size in (("days", 86400 * 2), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'days' else size):.1f} {unit}"
    return f"{seconds:.1f} s"
