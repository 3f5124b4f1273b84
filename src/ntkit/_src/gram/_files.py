"""Atomic files, and file system errors in plain words."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ntkit._src.common import bytes_text
from ntkit.errors import StoreError

TEMPORARY = ".ntkit-tmp"


def write_atomically(path: Path, *parts: Any) -> None:
    """Write buffers to a temporary file, sync it and rename it, so that this name never refers to a partial file."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def scratch_folder(owner: object, within: Path) -> Path:
    """Create a folder that is deleted with its owner."""
    folder = tempfile.mkdtemp(prefix="ntkit-scratch-", dir=within)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def free_disk(path: Path) -> int:
    """Return the free bytes of the file system that holds a path, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


@contextlib.contextmanager
def plain_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn file system errors into a :class:`StoreError` that says what was lost (nothing) and what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreError(
                f"no space is left for {doing} {path} ({bytes_text(free_disk(path))} free). Every tile written so far is kept: "
                "make room and run the same command again."
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise StoreError(
                f"{doing} {path} is not allowed ({error.strerror}). Name a folder that you may write to: out='...'."
            ) from error
        raise StoreError(f"{doing} {path} failed: {error}. Every tile written so far is kept.") from error


@contextlib.contextmanager
def locked(path: Path, otherwise: str = "name another path: out='...'") -> Iterator[None]:
    """Lock a file of a store, created if missing, until the process ends; the error says to wait or do ``otherwise``."""
    with plain_errors(path, "locking"):
        file = open(path, "ab")  # noqa: SIM115  closed below: errors raised inside are not the lock's
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"another run is writing to the store of {path}. Wait for it, or {otherwise}.") from error
        except OSError:  # a file system without locks: identical runs write identical tiles, which is harmless
            pass
        yield
