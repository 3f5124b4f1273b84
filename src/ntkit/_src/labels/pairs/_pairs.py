"""Pairs of inputs with their base kernel: the input of an estimator of "same class?"."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

from torch import Tensor

from ._products import PairProducts, pair_products

__all__ = ["PairEstimator", "Pairs"]


@dataclass(frozen=True)
class Pairs:
    """All pairs (x1_i, x2_j) with their base kernel.

    Attributes
    ----------
    x1
        Shape (n1, ...).
    x2
        Shape (n2, ...), or None if the pairs are those of x1 with itself.
    k
        The base kernel K(x1_i, x2_j), shape (n1, n2); symmetric if ``x2`` is None.
    """

    x1: Tensor
    x2: Tensor | None
    k: Tensor

    @cached_property
    def products(self) -> PairProducts:
        """Inner products and L1 distances of the flattened inputs; computed once, on first use."""
        return pair_products(self.x1.flatten(1), None if self.x2 is None else self.x2.flatten(1))

    def take(self, rows: Tensor, columns: Tensor | None = None) -> Pairs:
        """Return the pairs of some rows and columns; without columns those of the rows with themselves.

        Parameters
        ----------
        rows, columns : Tensor of shape (m,), integers
        """
        x2 = self.x1 if self.x2 is None else self.x2
        both = rows if columns is None else columns
        k = self.k[rows][:, both]
        return _Part(self.x1[rows], None if columns is None else x2[columns], k, self, rows, columns)


@dataclass(frozen=True)
class _Part(Pairs):
    """A subset of some pairs, which shares their products."""

    whole: Pairs
    rows: Tensor
    columns: Tensor | None

    @cached_property
    def products(self) -> PairProducts:
        return self.whole.products.take(self.rows, self.columns)


@runtime_checkable
class PairEstimator(Protocol):
    r"""An estimator of "same class?", :math:`Z(x, x')`: the two methods that :class:`~ntkit.LabelAware` calls.

    Examples
    --------
    The average target among training pairs of a similar base kernel, a histogram:

    >>> import torch, ntkit
    >>> class Histogram:
    ...     def fit(self, pairs, labels):
    ...         self.edges = torch.quantile(pairs.k.flatten(), torch.linspace(0, 1, 6, dtype=pairs.k.dtype))[1:-1]
    ...         bins, targets = torch.bucketize(pairs.k, self.edges), labels @ labels.T
    ...         self.means = torch.stack([targets[bins == b].mean() for b in range(5)])
    ...     def __call__(self, pairs):
    ...         return self.means[torch.bucketize(pairs.k, self.edges)].to(pairs.k)
    >>> x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> base = ntkit.infinite_width(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))).ntk
    >>> kernel = ntkit.LabelAware(base, pairs=Histogram(), strength=0.1).fit(x, x[:, 0] > 0)
    >>> kernel(x[:3]).shape
    torch.Size([3, 3])
    """

    def fit(self, pairs: Pairs, labels: Tensor) -> object:
        r"""Learn from all ordered training pairs; the return value is not used.

        Parameters
        ----------
        pairs : Pairs
            ``pairs.x1`` are the training inputs, ``pairs.x2`` is None, ``pairs.k`` is their base Gram matrix.
        labels : Tensor of shape (n, c), float64
            The target of a pair is the entry of ``labels @ labels.T``: :math:`y_i y_j` with labels -1 and 1 in one column for two
            classes, :math:`1\{y_i = y_j\}` with one-hot rows for more.
        """

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return Z, of the shape, dtype and device of ``pairs.k``; each entry depends only on its own pair, symmetrically."""
        ...
