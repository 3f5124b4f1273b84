"""The Gram matrices of experiments, on disk under names that identify them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ntkit import Kernel, gram
from ntkit.extending import kernel_fingerprint

from ._images import Images
from .skeleton import Run
from .skeleton._files import check_folder

__all__ = ["Fingerprinted", "stored_gram", "train_and_test"]

_TILE = 128
"""Rows and columns of a tile. An entry of a deep pooled network takes milliseconds, and an interrupted run loses its tile."""


class Fingerprinted(Kernel):
    """A kernel whose fingerprint is computed once, for all the matrices of a run.

    Parameters
    ----------
    kernel
        The kernel.
    input_shape
        The shape of one input, without the batch.
    """

    def __init__(self, kernel: Kernel, input_shape: Sequence[int]) -> None:
        self.kernel, self._fingerprint = kernel, repr(kernel_fingerprint(kernel, input_shape))

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.kernel(x1, x2)

    def diag(self, x: Tensor) -> Tensor:
        """Return that of the kernel."""
        return self.kernel.diag(x)

    def fingerprint(self) -> str:
        """Return what identifies the kernel."""
        return self._fingerprint


def stored_gram(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None,
    folder: Path,
    progress: Callable[[int, int], None] | None = None,
    resume: bool = True,
) -> NDArray[Any]:
    """Return K(x1, x2), or K(x1, x1) if ``x2`` is None, using what ``folder`` already holds.

    The file is named by a hash of everything its bytes depend on: the kernel, the inputs and the version of the library.

    Parameters
    ----------
    kernel
        The kernel; for several matrices of one kernel, :class:`Fingerprinted`.
    x1, x2
        The inputs, shape (n1, ...) and (n2, ...), float32 or float64.
    folder
        Where the matrix is, an ``.npy`` file of the inputs' dtype.
    progress
        Called with the number of entries done and their total.
    resume
        False recomputes everything, for example when the time is measured.

    Returns
    -------
    ndarray
        The matrix, shape (n1, n2), mapped from the file.

    See Also
    --------
    ntkit.gram : What computes, stores and resumes it.
    """
    known = kernel if isinstance(kernel, Fingerprinted) else Fingerprinted(kernel, x1.shape[1:])
    digest = hashlib.sha256(repr((known.fingerprint(), version("ntkit"))).encode())
    for x in (x1, x2):
        digest.update(b"none" if x is None else f"{x.dtype} {tuple(x.shape)}".encode())
        digest.update(b"" if x is None else x.contiguous().numpy().data)
    check_folder(folder)
    path = folder / f"{digest.hexdigest()[:16]}.npy"

    gram(known, x1, x2, out=path, tile=_TILE, resume=resume, progress=progress)
    matrix: NDArray[Any] = np.load(path, mmap_mode="r")
    return matrix


def train_and_test(kernel: Kernel, images: Images, run: Run[Any], label: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return K(x, x) and K(x_test, x), shapes (n, n) and (m, n), mapped from files in the folder of a run.

    Parameters
    ----------
    kernel, images
        Which kernel of which images.
    run
        Has the folder, and is told of the progress.
    label
        Of the progress, such as ``"depth 3"``.
    """
    known = Fingerprinted(kernel, images.x.shape[1:])

    def matrix(which: str, x1: Tensor, x2: Tensor | None) -> NDArray[Any]:
        def report(done: int, total: int) -> None:
            run.progress(f"{label}, {which}", done, total)

        return stored_gram(known, x1, x2, run.folder / "kernels", progress=report)

    return matrix("train", images.x, None), matrix("test", images.x_test, images.x)
