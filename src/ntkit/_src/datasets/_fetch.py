"""Original files of data sets: from the user's folder, or downloaded once with pooch and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntkit.errors import InputError, MissingDependencyError


@dataclass(frozen=True)
class RemoteFile:
    """A published file of a data set, and the hash of its bytes."""

    name: str
    url: str
    sha256: str


def fetch(data: str, files: Sequence[RemoteFile], folder: str | Path | None = None) -> list[Path]:
    """Return the files of a data set: from ``folder``, which must hold them all, or from pooch's cache, checked by hash."""
    if folder is not None:
        paths = [Path(folder) / file.name for file in files]
        missing = [file for file, path in zip(files, paths, strict=True) if not path.is_file()]
        if missing:
            wanted = ", ".join(f"{file.name} (from {file.url})" for file in missing)
            raise InputError(f"{folder} must hold the files of {data}. Missing: {wanted}.")
        return paths
    try:
        import pooch
    except ImportError as error:
        raise MissingDependencyError(
            "downloading data needs pooch: pip install 'ntkit[data]', or pass folder="
        ) from error
    return [_download(pooch, file, Path(pooch.os_cache("ntkit")) / data) for file in files]


def _download(pooch: Any, file: RemoteFile, cache: Path) -> Path:
    try:
        found = pooch.retrieve(file.url, f"sha256:{file.sha256}", file.name, cache)
    except ValueError as error:  # wrong hash
        raise InputError(
            f"{file.url} must have the sha256 {file.sha256}. Got another: the download was cut off or the file was changed. "
            "Try again, or pass folder= with your own files."
        ) from error
    except Exception as error:  # every downloader of pooch has its own exceptions
        raise InputError(
            f"cannot download {file.url} ({type(error).__name__}). Without a network, fetch {file.name} elsewhere and pass "
            f"folder= with the folder that holds it."
        ) from error
    return Path(found)
