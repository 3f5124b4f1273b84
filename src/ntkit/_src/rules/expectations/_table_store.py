"""Tables of library functions on disk, so that a process need not rebuild what an earlier one has built.

Only functions that torch or ntkit define are stored: their names and the versions identify the function, whereas two
user functions cannot be compared. A file that cannot be read or written is treated as missing.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import tempfile
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ntkit._src.program import AnyFunction

Table = tuple[Tensor, Tensor]
"""Chebyshev coefficients of E[f f] and of E[f' f'] on one pair of cells, shapes (orders in theta, order, order), float64."""

_SOURCES = ("_table.py", "_quadrature.py", "_limits.py", "_table_store.py")
_ENVIRONMENT = "NTKIT_CACHE_DIR"


def table_directory() -> Path | None:
    """Return the folder of the tables: ``tables`` in $NTKIT_CACHE_DIR or else the user's cache; None if that is empty."""
    given = os.environ.get(_ENVIRONMENT)
    if given is not None:
        return Path(given) / "tables" if given else None
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = str(Path.home() / "Library" / "Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "ntkit" / "tables"


@lru_cache(maxsize=1)
def _builder() -> str:
    """Return a fingerprint of the code that builds tables, so that changing it invalidates old ones."""
    found = hashlib.sha256(torch.__version__.encode())
    for name in _SOURCES:
        found.update((Path(__file__).parent / name).read_bytes())
    return found.hexdigest()


def _function_name(phi: AnyFunction) -> str | None:
    """Return a name that identifies the function in every process; None if it has no such name."""
    function: Any = phi.function
    options: dict[str, Any] = {}
    if isinstance(function, partial):
        options = function.keywords
        if function.args or not all(isinstance(value, (bool, int, float, str)) for value in options.values()):
            return None
        function = function.func
    name = getattr(function, "__name__", "")
    places = [("torch", torch), ("torch.nn.functional", F)]
    home = getattr(function, "__module__", None) or ""
    if home.startswith("ntkit."):
        places.append((home, importlib.import_module(home)))
    for place, module in places:
        if name and getattr(module, name, None) is function:
            return f"{place}.{name}{sorted(options.items())!r}, kinks {phi.kinks!r}"
    return None


def _file(phi: AnyFunction, cell1: int, cell2: int) -> tuple[Path, str] | None:
    """Return the path of a table and the key that its file must contain."""
    name, directory = _function_name(phi), table_directory()
    if name is None or directory is None:
        return None
    key = f"{name}, cells {cell1} and {cell2}, built by {_builder()}"
    return directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz", key


def load_table(phi: AnyFunction, cell1: int, cell2: int) -> Table | None:
    """Return the stored table of a pair of cells; None if there is none that can be read."""
    try:
        place = _file(phi, cell1, cell2)
        if place is None or not place[0].is_file():
            return None
        # Open the file here: numpy does not close one that it cannot read.
        with place[0].open("rb") as file, np.load(file, allow_pickle=False) as stored:
            value, slope = (torch.from_numpy(stored[name]) for name in ("value", "slope"))
            right = str(stored["key"]) == place[1] and all(
                c.ndim == 3 and c.dtype == torch.float64 and bool(torch.isfinite(c).all()) for c in (value, slope)
            )
    except Exception:  # whatever is wrong with the file or the disk, the table is rebuilt
        return None
    return (value, slope) if right else None


def store_table(phi: AnyFunction, cell1: int, cell2: int, table: Table) -> None:
    """Store a table atomically for later processes; do nothing if that fails."""
    try:
        place = _file(phi, cell1, cell2)
        if place is None:
            return
        path, key = place
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, key=np.array(key), value=table[0].numpy(), slope=table[1].numpy())
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError:
        return
