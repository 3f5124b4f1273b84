"""Files: written atomically, locked."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntkit.errors import StoreError

__all__ = ["check_folder", "locked", "write_whole"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep a second run away from a file, which is created if it is missing; the lock ends with the process.

    Raises
    ------
    StoreError
        If another run has locked it.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another run is writing to {path}. Wait, or name another folder: --output.") from error
        yield


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
