"""The Nystrom approximation: kernel ridge regression in the span of some centres, from one pass over the data."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_memory, mirror_upper, seconds_text
from ntkit._src.gram import GramOperator, free_disk, scratch_folder
from ntkit.errors import SingularKernelError

from ._centres import Centres, factorise_centres, find_centres
from ._method import Method, OnNote, Outcome, ShiftedGram, Solution, Status, System, read_rows, relative_residual

BLOCK_BYTES = 1 << 26
_STRIP = 512


@dataclass(frozen=True)
class Nystrom(Method):
    r"""Kernel ridge regression with M of the n training points as centres.

    .. math:: f(x) = K(x, Z)\, a, \qquad a = \arg\min_a \|K_{nM} a - y\|^2 + \rho\, a^T K_{MM} a, \qquad
              \rho = r \operatorname{tr} K / n,

    which is exact kernel ridge regression for M = n (Williams and Seeger 2001, Rudi et al. 2015). With
    :math:`K_{MM} = L L^T` and :math:`B = K_{nM} L^{-T}` the normal equations are
    :math:`(B^T B + \rho I)\, w = B^T y`, :math:`a = L^{-T} w`. K_nM is computed once, a block of rows at a time, and B^T B is
    added up in float64 from entries in the dtype of the inputs. Forming K_nM^T K_nM instead would square the condition number of
    K_MM too, and fail in float32.

    Parameters
    ----------
    n_centres : int, optional
        M. None (default): 2,000, or fewer beyond 250,000 rows (1,000 at a million).
    centres : {"uniform", "rpcholesky", "leverage", "kmeans++"} or Tensor of shape (M,), default "rpcholesky"
        How they are chosen (:func:`~ntkit.solvers.choose_centres`), or their row numbers.
    keep : bool, optional
        Whether to keep K_nM on disk for further right-hand sides. None (default): if it is set up without one, and
        writing the first block took less time than computing it.
    scratch : str, optional
        Folder for K_nM. None (default): the system's temporary folder.
    seed : int, default 0
        Seed of the random choice.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)), b_std=1.0).ntk
    >>> x = torch.randn(2000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> y = torch.sin(x.sum(1))
    >>> found = ntkit.solve(kernel, y, x=x, method=ntkit.solvers.Nystrom(100), ridge=1e-6)
    >>> found.value.shape, found.centres.shape, found.stats["misfit"] < 0.05
    (torch.Size([100]), torch.Size([100]), True)
    """

    n_centres: int | None = None
    centres: Centres | Tensor = "rpcholesky"
    keep: bool | None = None
    scratch: str | None = None
    seed: int = 0

    def set_up(
        self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None
    ) -> NystromSystem:
        """Read K_nM once: accumulate B^T B, and B^T y if y is given."""
        start = time.perf_counter()
        matrix = ShiftedGram.of(gram, ridge, note)
        centres = find_centres(gram, self.n_centres, self.centres, ridge, self.seed)
        check_memory(
            nystrom_bytes(len(centres), 1 if y is None else as_columns(y).shape[1]),
            f"a Nystrom approximation with {len(centres)} centres",
            "Use fewer centres, or Falkon, which does not form their normal equations.",
        )
        lower, jitter = factorise_centres(gram, centres, matrix.scale)
        blocks = RowBlocks(gram, centres)
        keep = self.keep if self.keep is not None or y is not None else blocks.worth_keeping(self.scratch)
        if keep:
            blocks.keep(self.scratch)
        normal = torch.zeros(len(centres), len(centres), dtype=torch.float64)
        columns = None if y is None else as_columns(y).detach().cpu().double()
        moment = None if columns is None else torch.zeros(len(centres), columns.shape[1], dtype=torch.float64)
        for rows, block in blocks:
            part = torch.linalg.solve_triangular(lower, block.double().T, upper=False)  # B^T, shape (M, rows)
            for first in range(0, len(part), _STRIP):  # only the upper triangle: torch lacks BLAS's syrk
                strip = slice(first, first + _STRIP)
                normal[strip, first:].addmm_(part[strip], part[first:].T)
            if moment is not None and columns is not None:
                moment.addmm_(part, columns[rows])
            left = (time.perf_counter() - start) * (gram.shape[0] / rows.stop - 1)
            matrix.note(f"{rows.stop} of {gram.shape[0]} rows; {seconds_text(left)} left.")
        mirror_upper(normal)
        seconds = time.perf_counter() - start
        return NystromSystem(matrix, blocks, centres, lower, jitter, normal, seconds, columns, moment)


@dataclass(frozen=True)
class NystromSystem(System):
    """The normal equations of a Nystrom approximation."""

    matrix: ShiftedGram
    _blocks: RowBlocks
    centres: Tensor  # row numbers, shape (M,)
    lower: Tensor  # L with L L^T = K_MM + jitter trace(K)/n I, shape (M, M)
    jitter: float
    normal: Tensor  # B^T B, shape (M, M), float64
    seconds: float  # of the set-up
    _targets: Tensor | None
    _moment: Tensor | None

    def with_ridge(self, ridge: float) -> NystromSystem:
        """Return the same system with another ridge, at the cost of one factorisation of M x M."""
        return replace(self, matrix=replace(self.matrix, ridge=ridge), seconds=0.0)

    def solve(self, y: Tensor) -> Solution:
        start = time.perf_counter()
        columns = as_columns(y).detach().cpu().double()
        moment = self._moment
        if moment is None or self._targets is None or not torch.equal(self._targets, columns):
            moment = torch.zeros(len(self.centres), columns.shape[1], dtype=torch.float64)
            for rows, block in self._blocks:  # another pass over K_nM
                moment += block.double().T @ columns[rows]
            moment = torch.linalg.solve_triangular(self.lower, moment, upper=False)
        shifted = self.normal.clone()
        shifted.diagonal().add_(self.matrix.shift)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if int(info):
            ridge = self.matrix.ridge
            raise SingularKernelError(
                f"the normal equations of {len(self.centres)} centres are singular with ridge={ridge:.1e}. Pass a larger one, "
                f"{max(10 * ridge, 1e-10):.0e} or so."
            )
        w = torch.cholesky_solve(moment, factor)
        w = w + torch.cholesky_solve(moment - shifted @ w, factor)  # one step of refinement
        value = torch.linalg.solve_triangular(self.lower.T, w, upper=True)
        norms = columns.square().sum(0)
        misfit = (norms - 2 * (w * moment).sum(0) + (w * (self.normal @ w)).sum(0)).clamp_min(0)
        stats = self.matrix.stats(
            relative_residual(moment - shifted @ w, moment),
            start - self.seconds,
            nystrom_bytes(len(self.centres), columns.shape[1]),
            misfit=float((misfit / torch.where(norms > 0, norms, 1)).sqrt().max()),
            iterations=1.0,
            jitter=self.jitter,
        )
        sentence = (
            f"Nystrom approximation with {len(self.centres)} of {len(columns)} rows as centres; "
            f"{'no jitter' if not self.jitter else f'a jitter of {self.jitter:.0e} trace(K)/n'} on their matrix; relative misfit "
            f"{stats['misfit']:.1e}."
        )
        shape = (len(self.centres), *y.shape[1:])
        return Solution(value.reshape(shape).to(y), Status(Outcome.APPROXIMATED, sentence), stats, self.centres)


class RowBlocks:
    """K_nM in blocks of rows: computed, or read from a file if it is kept."""

    def __init__(self, gram: GramOperator, centres: Tensor) -> None:
        self.gram, self.centres = gram, centres
        self.rows = max(64, BLOCK_BYTES // (8 * len(centres)))
        self._file: Path | None = None
        self._whole = False

    def keep(self, scratch: str | None) -> None:
        """Write blocks to a file in the first pass and read them in later ones."""
        self._file = scratch_folder(self, Path(tempfile.gettempdir() if scratch is None else scratch)) / "knm"

    def worth_keeping(self, scratch: str | None) -> bool:
        """Measure, on the first block, whether writing is faster than computing."""
        size = self.gram.shape[0] * len(self.centres) * self.gram.dtype.itemsize
        folder = Path(tempfile.gettempdir() if scratch is None else scratch)
        if size > free_disk(folder) // 2:
            return False
        start = time.perf_counter()
        block = self._compute(0)
        computed = time.perf_counter()
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(block.contiguous().numpy().data)
            file.flush()
            os.fsync(file.fileno())
        return time.perf_counter() - computed < computed - start

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        n = self.gram.shape[0]
        for start in range(0, n, self.rows):
            rows = slice(start, min(start + self.rows, n))
            if self._file is not None and self._whole:
                yield rows, read_rows(self._file, self.gram.dtype, rows, len(self.centres))
                continue
            block = self._compute(start)
            if self._file is not None:
                with open(self._file, "ab" if start else "wb") as file:
                    file.write(block.contiguous().numpy().data)
            yield rows, block
        self._whole = self._file is not None

    def _compute(self, start: int) -> Tensor:
        return self.gram.block(slice(start, start + self.rows), self.centres).cpu()


def nystrom_bytes(m: int, outputs: int) -> int:
    """Return the memory that the method holds, whatever n is."""
    return 8 * (4 * m * m + 2 * m * outputs) + 4 * BLOCK_BYTES
