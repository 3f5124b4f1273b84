"""Files that a run which was stopped goes on from."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["reserve", "write_json"]


def write_json(path: Path, content: object) -> None:
    """Write a new file and put it in the old one's place, so that a run stopped here leaves one of them whole."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def reserve(path: Path) -> None:
    """Take the space of a file now: writing to a mapped file on a full disk would end the program, not raise an error.

    Raises
    ------
    OSError
        The disk is full. The file is removed.
    """
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError:
        path.unlink()
        raise
