"""Files written atomically."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["check_folder", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a new file and replace the old one by it, so that an interruption leaves one of them intact."""
    fresh = path.with_name(path.name + ".part")
    try:
        with fresh.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def check_folder(folder: Path) -> None:
    """Create the folder and a file in it, so that an unwritable path is an error before the computation.

    Raises
    ------
    OSError
        If the folder cannot be created or written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".writable"
    probe.write_bytes(b"")
    probe.unlink()
