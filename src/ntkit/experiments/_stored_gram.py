"""A Gram matrix on disk, computed a block of rows at a time: a stopped run resumes where it was."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.common import Progress
from ntkit.errors import InputError
from ntkit.kernels import InfiniteWidthKernel

from ._program_fingerprint import program_fingerprint
from .skeleton._files import check_folder, reserve, write_whole
from .skeleton._records import decode, encode

__all__ = ["stored_gram"]


@dataclass(frozen=True)
class _Done:
    """What is done of a matrix.

    Attributes
    ----------
    key
        What the matrix depends on.
    rows
        How many rows, from the first on, are on disk.
    seconds
        What they took.
    """

    key: str
    rows: int
    seconds: float


def stored_gram(
    kernel: InfiniteWidthKernel,
    x1: Tensor,
    x2: Tensor | None,
    folder: Path,
    block: int = 500,
    progress: Progress | None = None,
) -> tuple[NDArray[Any], float]:
    """Give K(x1, x2), or K(x1, x1) where ``x2`` is None, from a file as far as it is there.

    The file is named by a hash of all that its bytes depend on: the traced network, which of its kernels, the inputs,
    the block, and the version of the library. Another of these is another file.

    Parameters
    ----------
    kernel
        The kernel.
    x1, x2
        The inputs, shape (n1, ...) and (n2, ...), float32 or float64.
    folder
        Where the matrix is, an ``.npy`` file of the inputs' type; how much of it is done is beside it, as ``.json``.
    block
        Rows at a time.
    progress
        Called with the entries done and those there are.

    Returns
    -------
    tuple
        The matrix, shape (n1, n2), mapped from the file, and the seconds that it took, earlier runs included.

    Raises
    ------
    InputError
        If the file is there and cannot be read.
    OSError
        If the disk is full, before anything is computed.
    """
    if block < 1:
        raise InputError(f"block must be at least 1. Got {block}.")
    key, columns = _key(kernel, x1, x2, block), x1 if x2 is None else x2
    check_folder(folder)
    path, notes = folder / f"{key[:16]}.npy", folder / f"{key[:16]}.json"
    if path.exists() and notes.exists():
        matrix, state = _read(path, notes, key, (len(x1), len(columns)))
    else:
        kind = {torch.float32: np.float32, torch.float64: np.float64}[x1.dtype]
        matrix = np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=(len(x1), len(columns)))
        reserve(path)
        state = _Done(key, 0, 0.0)
    while state.rows < len(x1):
        start = time.perf_counter()
        rows = slice(state.rows, min(state.rows + block, len(x1)))
        if x2 is None:
            matrix[rows, rows] = kernel(x1[rows]).numpy()
            if rows.stop < len(x1):
                matrix[rows, rows.stop :] = kernel(x1[rows], x1[rows.stop :]).numpy()
                matrix[rows.stop :, rows] = matrix[rows, rows.stop :].T
        else:
            matrix[rows] = kernel(x1[rows], x2).numpy()
        matrix.flush()  # the rows are on disk before they are said to be
        state = _Done(key, rows.stop, state.seconds + time.perf_counter() - start)
        write_whole(notes, json.dumps(encode(state)) + "\n")
        if progress is not None:
            progress(*_entries(rows.stop, len(x1), len(columns), x2 is None))
    return matrix, state.seconds


def _entries(stop: int, rows: int, columns: int, symmetric: bool) -> tuple[int, int]:
    if not symmetric:
        return stop * columns, rows * columns
    return stop * columns - stop * (stop - 1) // 2, rows * (rows + 1) // 2


def _key(kernel: InfiniteWidthKernel, x1: Tensor, x2: Tensor | None, block: int) -> str:
    program = kernel.limit._program(x1.shape[1:], kernel.which == "ntk")
    digest = hashlib.sha256(f"{program_fingerprint(program)} {kernel.which} {block} {version('ntkit')}".encode())
    for batch in (x1, x2):
        if batch is not None:
            digest.update(str((batch.dtype, batch.shape)).encode())
            digest.update(batch.contiguous().numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path, notes: Path, key: str, shape: tuple[int, int]) -> tuple[np.memmap[Any, Any], _Done]:
    """Give the matrix of a file, and how much of it is done."""
    try:
        state = decode(_Done, json.loads(notes.read_text(encoding="utf-8")))
        # A file that was cut off is filled up with zeros when opened to write.
        found = np.lib.format.open_memmap(path, mode="r")
        if found.shape != shape or state.key != key or not 0 <= state.rows <= shape[0]:
            raise ValueError(f"shape {found.shape}, {state.rows} rows done")
        return np.lib.format.open_memmap(path, mode="r+"), state
    except ValueError as error:
        raise InputError(
            f"{path} and {notes.name} must be a kernel and its notes from an earlier run. Got files that cannot be read "
            f"({error}). Remove both, or name another folder."
        ) from error
