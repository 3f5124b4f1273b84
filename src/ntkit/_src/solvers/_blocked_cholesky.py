"""Cholesky factorisation in block columns: in place in one matrix, or on disk if memory is short."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ntkit._src.common import as_columns, bytes_text, row_blocks
from ntkit._src.gram import GramOperator, StoredGram, free_disk, scratch_folder
from ntkit.errors import MemoryLimitError, SingularKernelError, StoreError

from ._cholesky import upper_product
from ._conjugate_gradients import conjugate_gradients
from ._lapack import reliable_pivots
from ._method import Method, OnNote, Outcome, ShiftedGram, Solution, Status, System, memory_limit, read_rows

_WIDTH = 1024
_LARGEST_JITTER = {torch.float32: 1e-3, torch.float64: 1e-6}


def cholesky_bytes(n: int, itemsize: int) -> int:
    """Return the memory that the in-place factorisation takes, including the matrix."""
    return n * n * itemsize + 3 * n * _WIDTH * itemsize


@dataclass(frozen=True)
class BlockedCholesky(Method):
    """Exact solution by Cholesky factorisation with one matrix in memory, or none.

    The factor occupies the lower triangle of the only matrix in memory; the upper triangle keeps K. If even that does not fit,
    block columns of the factor go to disk. The factor has the dtype of the stored entries. It then preconditions conjugate
    gradients in float64 on K itself (iterative refinement), so neither the rounding of a float32 factorisation nor the jitter it
    may need changes the solution.

    Parameters
    ----------
    in_memory : bool, optional
        Whether to hold the matrix in memory. None (default): if it fits.
    memory : int, optional
        Bytes that may be used. None (default): four fifths of what is available.
    scratch : str, optional
        Folder for the factor on disk. None (default): next to the stored matrix, or the system's temporary folder.
    rtol : float, default 1e-12
        The residual that refinement aims at.
    max_iterations : int, default 100
        Maximum number of refinement steps.
    """

    in_memory: bool | None = None
    memory: int | None = None
    scratch: str | None = None
    rtol: float = 1e-12
    max_iterations: int = 100

    def set_up(self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None) -> System:
        """Read the matrix and factorise it."""
        n, matrix = gram.shape[0], ShiftedGram.of(gram, ridge, note)
        limit = memory_limit(self.memory)
        needed = cholesky_bytes(n, gram.dtype.itemsize)
        inside = needed <= limit if self.in_memory is None else self.in_memory
        if inside and needed > limit:
            raise MemoryLimitError(
                f"factorising {n} x {n} {gram.dtype} entries in memory takes {bytes_text(needed)}, and {bytes_text(limit)} can "
                "be used. Write BlockedCholesky(in_memory=False), which works on disk."
            )
        panels = _InPlace(gram) if inside else _OnDisk(gram, limit, self.scratch)
        jitter, eps = 0.0, torch.finfo(gram.dtype).eps
        while not _factorise(panels, (ridge + jitter) * matrix.scale, matrix.note):
            jitter = max(10 * jitter, 10 * eps)
            if jitter > _LARGEST_JITTER[gram.dtype]:
                raise SingularKernelError(
                    f"the Gram matrix stays singular with ridge={ridge:.1e} and a jitter of {jitter / 10:.0e} trace(K)/n. Is it "
                    f"positive semidefinite? Pass a ridge above {max(ridge, jitter):.0e}, or store it in float64."
                )
            matrix.note(f"The factorisation broke down and is repeated with {jitter:.0e} trace(K)/n on the diagonal.")
        return _Factored(matrix, panels, jitter, self)


def scratch_place(gram: GramOperator) -> Path:
    """Return the folder for files of a factor: next to a stored matrix, or the system's temporary one."""
    return Path(gram.path).parent if isinstance(gram, StoredGram) else Path(tempfile.gettempdir())


class _InPlace:
    """Block columns of one matrix: K in its upper triangle, the factor in the lower one; the diagonal of K is kept apart."""

    def __init__(self, gram: GramOperator) -> None:
        self.n, self.dtype = gram.shape[0], gram.dtype
        self.columns = list(row_blocks(self.n, _WIDTH))
        self.matrix = torch.empty(self.n, self.n, dtype=gram.dtype)
        for rows, columns, values in gram.tiles():
            self.matrix[rows, columns] = values.cpu()
        self.diagonal = self.matrix.diagonal().clone()
        self.bytes = cholesky_bytes(self.n, gram.dtype.itemsize)

    def kernel(self, j: int) -> Tensor:
        """Return a copy of block column j of K from the diagonal down, shape (n - start, width)."""
        own = self.columns[j]
        panel = self.matrix[own, own.start :].T.contiguous()
        top = panel[: own.stop - own.start]
        upper = self.matrix[own, own].triu(1)
        top.copy_(upper + upper.T + torch.diag(self.diagonal[own]))
        return panel

    def factor(self, j: int, start: int) -> Tensor:
        """Return block column j of the factor from row ``start`` down."""
        return self.matrix[start:, self.columns[j]]

    def put(self, j: int, panel: Tensor) -> None:
        """Store block column j of the factor, from its diagonal down; entries above the diagonal are not read."""
        own = self.columns[j]
        size = own.stop - own.start
        self.matrix[own, own] = panel[:size].tril() + self.matrix[own, own].triu(1)
        self.matrix[own.stop :, own] = panel[size:]

    def product(self, v: Tensor) -> Tensor:
        """Return K v for v of shape (n, k), float64."""
        return upper_product(self.matrix, self.diagonal, v, _WIDTH)


class _OnDisk:
    """Block columns of the factor in files of a temporary folder; K is read from its store."""

    def __init__(self, gram: GramOperator, limit: int, scratch: str | None) -> None:
        self.n, self.dtype, self.gram = gram.shape[0], gram.dtype, gram
        size = gram.dtype.itemsize
        # Two panels, a product and a tile of K are in memory at a time.
        fitting = (limit - 2 * gram.plan.size**2 * size) // (4 * self.n * size)
        if fitting < 32:
            raise MemoryLimitError(
                f"factorising {self.n} x {self.n} entries on disk needs at least "
                f"{bytes_text(128 * self.n * size + 2 * gram.plan.size**2 * size)} of memory, and {bytes_text(limit)} can be "
                "used. Use method='cg', or a Nystrom approximation."
            )
        width = min(int(fitting), 4096, self.n)
        self.columns = list(row_blocks(self.n, width))
        self.bytes = 4 * self.n * width * size + 2 * gram.plan.size**2 * size
        folder = scratch_place(gram) if scratch is None else Path(scratch)
        needed = self.n * (self.n + width) // 2 * size
        if needed > free_disk(folder):
            raise StoreError(
                f"the factor takes {bytes_text(needed)} on disk, and {folder} has {bytes_text(free_disk(folder))} free. Name "
                "another folder: BlockedCholesky(scratch=...)."
            )
        self._folder = scratch_folder(self, folder)

    def kernel(self, j: int) -> Tensor:
        own = self.columns[j]
        return self.gram.block(slice(own.start, None), own).cpu().clone()

    def factor(self, j: int, start: int) -> Tensor:
        own = self.columns[j]
        rows = slice(start - own.start, self.n - own.start)
        return read_rows(self._folder / str(j), self.dtype, rows, own.stop - own.start)

    def put(self, j: int, panel: Tensor) -> None:
        panel.contiguous().numpy().tofile(self._folder / str(j))

    def product(self, v: Tensor) -> Tensor:
        return self.gram.product(v)


_Panels = _InPlace | _OnDisk


def _factorise(panels: _Panels, shift: float, note: OnNote) -> bool:
    """Replace K + shift I by its factor, block column by block column from the left; False if it is singular."""
    start = time.perf_counter()
    for j in range(len(panels.columns)):
        own = panels.columns[j]
        size = own.stop - own.start
        panel = panels.kernel(j)
        panel[:size].diagonal().add_(shift)
        before = panel[:size].diagonal().clone()
        for k in range(j):
            left = panels.factor(k, own.start)
            panel.addmm_(left, left[:size].T, alpha=-1)
        lower, info = torch.linalg.cholesky_ex(panel[:size])
        if int(info) or not reliable_pivots(lower, before):
            return False
        panel[:size] = lower
        if len(panel) > size:
            panel[size:] = torch.linalg.solve_triangular(lower, panel[size:].T, upper=False).T
        panels.put(j, panel)
        share, seconds = 1 - (1 - own.stop / panels.n) ** 3, time.perf_counter() - start
        note(f"Factorised {own.stop} of {panels.n} columns in {seconds:.0f} s ({share:.0%}).")
    return True


def _substitute(panels: _Panels, y: Tensor) -> Tensor:
    """Return (L L^T)^-1 y for y of shape (n, k)."""
    value = y.to(panels.dtype, copy=True)
    for j in range(len(panels.columns)):
        own = panels.columns[j]
        panel = panels.factor(j, own.start)
        size = own.stop - own.start
        value[own] = torch.linalg.solve_triangular(panel[:size].tril(), value[own], upper=False)
        value[own.stop :] -= panel[size:] @ value[own]
    for j in reversed(range(len(panels.columns))):
        own = panels.columns[j]
        panel = panels.factor(j, own.start)
        size = own.stop - own.start
        rest = value[own] - panel[size:].T @ value[own.stop :]
        value[own] = torch.linalg.solve_triangular(panel[:size].tril().T, rest, upper=True)
    return value.to(y.dtype)


@dataclass(frozen=True)
class _Factored(System):
    matrix: ShiftedGram
    panels: _Panels
    jitter: float
    settings: BlockedCholesky

    def solve(self, y: Tensor) -> Solution:
        start = time.perf_counter()
        columns = as_columns(y).detach().cpu().double()
        found = conjugate_gradients(
            lambda v: self.panels.product(v) + self.matrix.shift * v,
            columns,
            lambda v: _substitute(self.panels, v),
            self.settings.rtol,
            self.settings.max_iterations,
            self.matrix.note,
        )
        steps = float(found.iterations)
        stats = self.matrix.stats(found.residual, start, self.panels.bytes, refinements=steps, iterations=steps)
        # For an ill-conditioned matrix, rounding stops refinement above any tolerance; what counts is that y is reproduced.
        good = found.residual <= max(self.settings.rtol, torch.finfo(torch.float64).eps ** 0.5)
        where = "in memory" if isinstance(self.panels, _InPlace) else "on disk"
        jitter = f"the factor, not the solution, has a jitter of {self.jitter:.0e}"
        added = jitter if self.jitter else "no jitter was needed"
        sentence = (
            f"Solved by Cholesky factorisation {where} in {self.panels.dtype}, refined in float64 by {found.iterations} steps; "
            f"{added}; relative residual {found.residual:.1e}."
        )
        status = Status(Outcome.SOLVED, sentence) if good else found.status("refinement of a Cholesky factorisation")
        return Solution(found.value.reshape(y.shape).to(y), status, stats)
