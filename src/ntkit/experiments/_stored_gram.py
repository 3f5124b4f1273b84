"""A Gram matrix on disk, computed a block of rows at a time: a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.errors import InputError
from ntkit.kernels import Kernel

from ._files import reserve, write_json

__all__ = ["stored_gram"]


def stored_gram(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    path: Path,
    name: str,
    block: int = 500,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[NDArray[Any], float]:
    """Give K(x1, x2), or K(x1, x1) where ``x2`` is None, from a file as far as it is there.

    Parameters
    ----------
    kernel
        The kernel.
    x1, x2
        The inputs.
    path
        The matrix, an ``.npy`` file of the inputs' type; which rows are done is beside it, as ``.json``.
    name
        What the kernel is: a file of another kernel or of other inputs is refused.
    block
        Rows at a time.
    progress
        Called with the entries done and those there are.

    Returns
    -------
    tuple
        The matrix, mapped from the file, and the seconds that its computation took, earlier runs included.
    """
    columns = x1 if x2 is None else x2
    key = _fingerprint(name, x1, x2)
    notes = path.with_suffix(".json")
    done: dict[str, float] = {}
    if path.exists() and notes.exists():
        matrix, done = _read(path, notes, key)
    else:
        kind = {torch.float32: np.float32, torch.float64: np.float64}[x1.dtype]
        matrix = np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=(len(x1), len(columns)))
        reserve(path)
    for first in range(0, len(x1), block):
        rows = slice(first, min(first + block, len(x1)))
        if str(first) not in done:
            start = time.perf_counter()
            if x2 is None:
                matrix[rows, rows] = kernel(x1[rows]).numpy()
                if rows.stop < len(x1):
                    matrix[rows, rows.stop :] = kernel(x1[rows], x1[rows.stop :]).numpy()
                    matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T
            else:
                matrix[rows] = kernel(x1[rows], x2).numpy()
            matrix.flush()  # the rows are on disk before they are said to be
            done[str(first)] = time.perf_counter() - start
            write_json(notes, {"key": key, "seconds": done})
        if progress is not None:
            progress(*_entries(rows.stop, len(x1), len(columns), x2 is None))
    return matrix, sum(done.values())


def _entries(stop: int, rows: int, columns: int, symmetric: bool) -> tuple[int, int]:
    if not symmetric:
        return stop * columns, rows * columns
    return stop * columns - stop * (stop - 1) // 2, rows * (rows + 1) // 2


def _fingerprint(name: str, *batches: Tensor | None) -> str:
    digest = hashlib.sha256(name.encode())
    for batch in batches:
        if batch is not None:
            digest.update(str((batch.dtype, batch.shape)).encode())
            digest.update(batch.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def _read(path: Path, notes: Path, key: str) -> tuple[np.memmap[Any, Any], dict[str, float]]:
    """Give the matrix of a file, and the seconds of the blocks that are done."""
    try:
        found = json.loads(notes.read_text(encoding="utf-8"))
        made_of, done = found["key"], {str(first): float(seconds) for first, seconds in found["seconds"].items()}
        np.lib.format.open_memmap(
            path, mode="r"
        )  # a file that was cut off is filled up with zeros when opened to write
        matrix = np.lib.format.open_memmap(path, mode="r+")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} and {notes.name} must be a kernel and its notes from an earlier run. Got files that cannot be read "
            f"({error}). Remove both, or name another folder."
        ) from error
    if made_of != key:
        raise InputError(f"{path} holds the kernel of other data or another network. Name another folder.")
    return matrix, done
