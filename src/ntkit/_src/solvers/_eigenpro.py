"""EigenPro: stochastic gradient descent for the full kernel, with its leading directions slowed down."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_integer
from ntkit._src.gram import GramOperator

from ._method import Method, OnNote, Outcome, ShiftedGram, Solution, Status, System, relative_residual

_SAFETY = 0.9
_SMALL_BATCH, _POWER_STEPS = 256, 30


def eigenpro_bytes(n: int, sample: int, rank: int, batch: int, outputs: int) -> int:
    """Return the memory that the method holds: blocks of rows, never a matrix of n^2."""
    return 8 * (sample * rank + 2 * n * batch + 3 * n * outputs + 2 * sample * batch)


@dataclass(frozen=True)
class EigenPro(Method):
    r"""Preconditioned stochastic iterations for all n points (Ma and Belkin 2019).

    For a batch b of rows with remainder :math:`g = K_{bn} a - y_b`, the step is :math:`a_b \leftarrow a_b - \eta g` and
    :math:`a_S \leftarrow a_S + \eta V D V^T K_{Sb}\, g`, where S is a sample of rows, :math:`K_{SS} V = V \Sigma` its q leading
    eigenvectors and :math:`D = \Sigma^{-1} (I - \sigma_{q+1} \Sigma^{-1})`: the leading directions of the kernel, which
    limit the step, are slowed down to the speed of the next; :math:`\eta` is found for each batch. The ridge is part of
    the kernel, K + rho I. Batches take rows in the given order, so shuffle sorted data first.

    Parameters
    ----------
    epochs : int, default 20
        Maximum number of passes over the rows; each reads or computes all of K.
    rtol : float, default 1e-6
        Stop when the relative residual, estimated over an epoch, is below this.
    sample : int, optional
        Rows of S. None (default): at most 2000.
    rank : int, optional
        q. None (default): a tenth of the sample.
    batch : int, optional
        Rows per step. None (default): what fits into 256 MB, at most an eighth of the rows.
    seed : int, default 0
        Seed of the random choices.
    """

    epochs: int = 20
    rtol: float = 1e-6
    sample: int | None = None
    rank: int | None = None
    batch: int | None = None
    seed: int = 0

    def set_up(self, gram: GramOperator, ridge: float, y: Tensor | None = None, note: OnNote | None = None) -> System:
        """Decompose the matrix of the sample."""
        check_integer("epochs", self.epochs, 1)
        n, matrix = gram.shape[0], ShiftedGram.of(gram, ridge, note)
        size = min(n, 2000 if self.sample is None else check_integer("sample", self.sample, 2))
        rank = min(size - 1, max(1, size // 10) if self.rank is None else check_integer("rank", self.rank, 1))
        chosen = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))[:size].sort().values
        square = gram.block(chosen, chosen).cpu().double()
        square.diagonal().add_(matrix.shift)
        values, vectors = torch.linalg.eigh(square)
        top, vectors, following = values[-rank:], vectors[:, -rank:], float(values[-rank - 1])
        following = max(following, 1e-12 * float(top[-1]))
        damping = (1 - following / top) / top
        fitting = max(1, min(n // 8, (1 << 28) // (16 * n)))
        rows = fitting if self.batch is None else min(n, check_integer("batch", self.batch, 1))
        return _EigenProSystem(matrix, chosen, vectors, damping, rows, self)


@dataclass(frozen=True)
class _EigenProSystem(System):
    matrix: ShiftedGram
    sample: Tensor
    vectors: Tensor
    damping: Tensor
    batch: int
    settings: EigenPro

    def solve(self, y: Tensor) -> Solution:
        begun = time.perf_counter()
        columns = as_columns(y).detach().cpu().double()
        n, m, gram, rho = len(columns), self.batch, self.matrix.gram, self.matrix.shift
        source = torch.Generator().manual_seed(self.settings.seed + 1)
        starts = list(range(0, n, m))
        value = torch.zeros_like(columns)
        history: list[float] = []
        steps: dict[int, float] = {}
        for epoch in range(self.settings.epochs):
            squares = torch.zeros(columns.shape[1], dtype=torch.float64)
            for index in torch.randperm(len(starts), generator=source).tolist():
                rows = slice(starts[index], min(starts[index] + m, n))
                block = gram.block(rows, None).cpu().double()
                remainder = block @ value + rho * value[rows] - columns[rows]
                squares += remainder.square().sum(0)
                cross = self._cross(block, rows, rho)
                if index not in steps:
                    steps[index] = self._step(block[:, rows], cross, rho)
                value[rows] -= steps[index] * remainder
                value[self.sample] += steps[index] * self.vectors @ (self.damping[:, None] * (cross @ remainder))
            history.append(relative_residual(squares.sqrt()[None], columns))
            self.matrix.note(f"Epoch {epoch + 1}: relative residual {history[-1]:.1e} on the way.")
            if history[-1] <= self.settings.rtol or not math.isfinite(history[-1]) or history[-1] > 1e6:
                break
        residual = relative_residual(self.matrix.apply(value) - columns, columns)
        held = eigenpro_bytes(n, len(self.sample), self.vectors.shape[1], m, columns.shape[1])
        epochs = float(len(history))
        stats = self.matrix.stats(residual, begun, held, iterations=epochs * len(starts), epochs=epochs)
        return Solution(value.reshape(y.shape).to(y), self._status(history, residual), stats)

    def _cross(self, block: Tensor, rows: slice, rho: float) -> Tensor:
        """Return V^T (K + rho I)_Sb, shape (q, m), from the rows of K, shape (m, n)."""
        cross = block[:, self.sample].T.clone()
        same = ((self.sample >= rows.start) & (self.sample < rows.stop)).nonzero()[:, 0]
        cross[same, self.sample[same] - rows.start] += rho
        return self.vectors.T @ cross

    def _step(self, square: Tensor, cross: Tensor, rho: float) -> float:
        """Return the step of a batch, one over the largest eigenvalue of its preconditioned matrix; below twice it converges."""
        matrix = square - (self.damping[:, None] * cross).T @ cross
        matrix.diagonal().add_(rho)
        if len(matrix) <= _SMALL_BATCH:
            return _SAFETY / float(torch.linalg.eigvalsh(matrix)[-1])
        v = torch.ones(len(matrix), dtype=matrix.dtype)
        largest = 0.0
        for _ in range(_POWER_STEPS):
            v = matrix @ (v / v.norm())
            largest = float(v.norm())
        return _SAFETY / largest

    def _status(self, history: list[float], residual: float) -> Status:
        if residual <= self.settings.rtol:
            sentence = f"Solved by EigenPro in {len(history)} epochs; relative residual {residual:.1e}."
            return Status(Outcome.SOLVED, sentence)
        half = len(history) // 2
        falling = len(history) > 1 and history[-1] < history[half] and math.isfinite(residual)
        if falling:
            speed = math.log(history[half] / history[-1]) / max(len(history) - 1 - half, 1)
            needed = len(history) + math.ceil(1.2 * math.log(max(residual, history[-1]) / self.settings.rtol) / speed)
            advice = f"at this speed about {needed} are needed: pass epochs={needed}, a larger sample and rank, or a larger ridge"
        else:
            advice = "it does not fall: pass a smaller batch or a larger sample"
        return Status(
            Outcome.NOT_CONVERGED,
            f"Not solved: EigenPro left a relative residual of {residual:.1e} after {len(history)} epochs; {advice}.",
        )
