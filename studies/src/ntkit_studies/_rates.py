"""Rates of this machine for estimates: seconds per entry of a kernel, operations per second; and what images a run has."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from numpy.lib import format as npy
from torch import Tensor

from ntkit import Kernel
from ntkit.errors import InputError

from .skeleton import duration

__all__ = ["CUBIC", "cholesky_rate", "entry_seconds", "image_shape", "product_rate"]

_ENOUGH = 0.3  # seconds of a measurement that overheads do not spoil
_SMALLEST, _LARGEST = 8, 64  # rows of a block: an entry alone takes several times its share of a block
_ROWS = 1024

CUBIC = "algebra by a factorisation of 1,024 rows"
"""How :func:`cholesky_rate` measures, for the basis of an estimate."""


def image_shape(data: Path | None) -> tuple[int, int]:
    """Return channels and side of a file's images, read from its header alone; of the digits without a file.

    Raises
    ------
    InputError
        If the file has no such images.

    Examples
    --------
    >>> image_shape(None)
    (1, 8)
    """
    if data is None:
        return 1, 8
    try:
        with zipfile.ZipFile(data) as file, file.open("x_train.npy") as array:
            version = npy.read_magic(array)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, _ = read(array)
        _, side, _, channels = shape
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(
            f"--data must be an .npz file with x_train, y_train, x_test and y_test. {data}: {error}"
        ) from error
    return int(channels), int(side)


def entry_seconds(kernel: Kernel, shape: Sequence[int]) -> float:
    """Measure the seconds per entry of a kernel between random float32 inputs, in blocks large enough to tell.

    Parameters
    ----------
    kernel
        Of the run.
    shape
        Of one input.
    """
    rows = _SMALLEST
    while True:
        x = torch.randn(2 * rows, *shape, generator=torch.Generator().manual_seed(0))

        def block(x: Tensor = x, rows: int = rows) -> Tensor:
            return kernel(x[:rows], x[rows:])

        seconds = duration(block)
        if seconds > _ENOUGH or rows >= _LARGEST:
            return seconds / rows**2
        rows *= 2


def cholesky_rate() -> float:
    """Measure operations per second of a float64 Cholesky factorisation, n^3 / 3 of them; larger ones are faster."""
    matrix = torch.eye(_ROWS, dtype=torch.float64).mul_(_ROWS).add_(1.0)
    return _rate(_ROWS**3 / 3, lambda: torch.linalg.cholesky(matrix))


def product_rate(dtype: torch.dtype = torch.float32) -> float:
    """Measure operations per second of a product of matrices."""
    matrix = torch.ones(_ROWS, _ROWS, dtype=dtype)
    return _rate(2 * _ROWS**3, lambda: matrix @ matrix)


def _rate(operations: float, call: Callable[[], object]) -> float:
    return operations / max(duration(call), 1e-9)
