"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["check_folder", "write_whole"]


def write_whole(path: Path, text: str) -> None:
    """Write a new file and put it in the old one's place: a run stopped here leaves one of them whole."""
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
    """Make the folder and a file in it, so that a place nobody can write to is an error before the computation.

    Raises
    ------
    OSError
        The folder cannot be made, or nothing can be written there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / ".writable"
    probe.write_bytes(b"")
    probe.unlink()
