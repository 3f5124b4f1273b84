"""In-place factorisation of a large Gram matrix: one triangle holds the factor, the other keeps the matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import mirror_upper, row_blocks

from ._cholesky import refine
from ._lapack import reliable_pivots, run_lapack

__all__ = ["InPlaceFactor", "factorize_in_place"]

_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class InPlaceFactor:
    """A = K + shift I = L L^T in the memory of K: no second matrix of that size is held.

    Attributes
    ----------
    memory
        Shape (n, n): L^T on and above the diagonal, K below it.
    diagonal
        The diagonal of K, shape (n,).
    shift
        What was added to the diagonal.
    """

    memory: Tensor
    diagonal: Tensor
    shift: float

    def solve(self, y: Tensor) -> tuple[Tensor, float]:
        """Return A^-1 y for y of shape (n, k), with iterative refinement, and the relative residual."""
        value, residual, _ = refine(self._substitute, lambda one: self._remainder(y, one), y)
        return value, residual

    def inverse_diagonal(self) -> Tensor:
        """Return the diagonal of A^-1, shape (n,). This destroys the factor; K below the diagonal stays."""
        run_lapack("trtri", self.memory, lower=1, overwrite_c=1)
        # Row i of the upper triangle is column i of L^-1.
        parts = []
        for rows in row_blocks(len(self.memory), _BLOCK_ROWS):
            own = self.memory[rows, rows].triu().square().sum(1)
            parts.append(own + self.memory[rows, rows.stop :].square().sum(1))
        return torch.cat(parts)

    def restore(self) -> Tensor:
        """Restore K in its memory; this destroys the factor."""
        return _restore(self.memory, self.diagonal)

    def _substitute(self, columns: Tensor) -> Tensor:
        found, _ = run_lapack("potrs", self.memory, columns.numpy(), lower=1)
        return torch.from_numpy(found.copy(order="C"))

    def _remainder(self, y: Tensor, value: Tensor) -> Tensor:
        """Return y - A value, formed in float64, a block of rows at a time."""
        wide, parts = value.double(), []
        for rows in row_blocks(len(self.memory), _BLOCK_ROWS):
            square = self.memory[rows, rows].tril(-1)
            square = square + square.T
            square.diagonal().copy_(self.diagonal[rows])
            product = square.double() @ wide[rows] + self.memory[rows, : rows.start].double() @ wide[: rows.start]
            product += self.memory[rows.stop :, rows].double().T @ wide[rows.stop :]
            parts.append(y[rows].double() - product - self.shift * wide[rows])
        return torch.cat(parts).to(y.dtype)


def factorize_in_place(gram: Tensor, ridge: float) -> InPlaceFactor | None:
    """Factorise K + ridge trace(K)/n I in the memory of K; return None and leave K intact if that needs jitter.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
        K, symmetric, contiguous, on the CPU, and checked; it is overwritten.
    ridge : float
        Relative to trace(K)/n.
    """
    diagonal = gram.diagonal().clone()
    shift = ridge * float(diagonal.double().mean())
    gram.diagonal().add_(shift)
    _, info = run_lapack("potrf", gram, lower=1, clean=0, overwrite_a=1)
    if info == 0 and reliable_pivots(gram, diagonal + shift):
        return InPlaceFactor(gram, diagonal, shift)
    _restore(gram, diagonal)
    return None


def _restore(memory: Tensor, diagonal: Tensor) -> Tensor:
    memory.diagonal().copy_(diagonal)
    mirror_upper(memory.T)
    return memory
