"""The fast Johnson-Lindenstrauss transform of a matrix with very many rows, which is never stored."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntkit.errors import InputError

__all__ = ["Sketch", "sketch_size", "walsh_hadamard"]

_LONGEST_BLOCK = 2**14


def walsh_hadamard(x: Tensor) -> Tensor:
    r"""Multiply the last dimension by the orthogonal Walsh-Hadamard matrix :math:`H_{ij} = (-1)^{\langle i, j \rangle}/\sqrt m`.

    This takes m log m additions; :math:`\langle i, j \rangle` is the inner product of the bits of i and j.

    Parameters
    ----------
    x : Tensor of shape (..., m)
        m a power of two.

    Examples
    --------
    >>> walsh_hadamard(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    length = x.shape[-1]
    if length < 1 or length & (length - 1):
        raise InputError(
            f"the Walsh-Hadamard transform needs a length that is a power of two. Got {length}: pad with zeros."
        )
    result: Tensor = x / length**0.5
    half = 1
    while half < length:
        halves = result.reshape(*x.shape[:-1], length // (2 * half), 2, half)
        low, high = halves[..., 0, :], halves[..., 1, :]
        result = torch.stack([low + high, low - high], dim=-2).reshape(x.shape)
        half *= 2
    return result


def sketch_size(columns: int, eps: float) -> int:
    r"""Return the rows, :math:`\lceil p \log p / \epsilon^2 \rceil`, that preserves norms in p dimensions to 1 + eps."""
    return max(columns + 1, math.ceil(columns * math.log(max(columns, 2)) / eps**2))


class Sketch:
    r"""The product :math:`P H D A` of Ailon and Chazelle's transform [1]_ with a matrix A that comes in blocks of rows.

    D has random signs on its diagonal; H is a Walsh-Hadamard transform, which spreads every row over its block; P is sparse:
    a fraction :math:`q = \min(1, \log^2 N / N)` of its entries is drawn from a normal distribution of variance
    :math:`1/(q k)`, so that :math:`E\, \|P H D v\|^2 = \|v\|^2`. Least squares with the k rows of P H D A instead of the N
    rows of A has a residual at most about 1 + eps times the smallest for :func:`sketch_size` rows.

    H is block-diagonal, with blocks of at most 16384 rows, since A is never stored: rows of A that dominate all others are
    spread only over their block. The positions of the entries of P are drawn with replacement.

    Parameters
    ----------
    rows, columns : int
        k, and the number of columns of A.
    total : int
        N, the number of rows of A, which sets the density q.
    generator : torch.Generator, optional
        Generator on the CPU; None: torch's global one.

    References
    ----------
    .. [1] Ailon, Chazelle, "The Fast Johnson-Lindenstrauss Transform and Approximate Nearest Neighbors", 2009.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> a = torch.randn(3, 1000, dtype=torch.float64, generator=generator)
    >>> sketch = Sketch(400, 3, total=1000, generator=generator)
    >>> sketch.add(a)
    >>> bool((torch.linalg.svdvals(sketch.value) / torch.linalg.svdvals(a) - 1).abs().max() < 0.3)
    True
    """

    def __init__(self, rows: int, columns: int, total: int, generator: torch.Generator | None = None) -> None:
        self._rows = rows
        self._density = min(1.0, math.log(max(total, 2)) ** 2 / total)
        self._generator = generator
        self._value = torch.zeros(rows, columns, dtype=torch.float64)

    @property
    def value(self) -> Tensor:
        """P H D A for the blocks added so far, shape (k, p), float64 on the CPU."""
        return self._value

    def add(self, block: Tensor) -> None:
        """Add rows of A, given as columns: shape (p, m), float64."""
        length = min(_LONGEST_BLOCK, 1 << (block.shape[1] - 1).bit_length())
        count = math.ceil(block.shape[1] / length)
        padded = torch.nn.functional.pad(block.cpu(), (0, count * length - block.shape[1]))
        signs = 2.0 * torch.randint(2, (count * length,), generator=self._generator) - 1
        mixed = walsh_hadamard((padded * signs).reshape(len(block), count, length)).reshape(len(block), -1)
        cells = torch.tensor(float(self._rows * count * length), dtype=torch.float64)
        chance = torch.tensor(self._density, dtype=torch.float64)
        entries = int(torch.binomial(cells, chance, generator=self._generator))
        places = torch.randint(self._rows, (entries,), generator=self._generator)
        sources = torch.randint(count * length, (entries,), generator=self._generator)
        normal = torch.randn(entries, dtype=torch.float64, generator=self._generator)
        weights = normal / (self._density * self._rows) ** 0.5
        self._value.index_add_(0, places, (mixed[:, sources] * weights).T)
