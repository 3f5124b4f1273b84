"""Linear regression of "same class?" on pair features, over all pairs without holding them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import SERIAL_ENTRIES, mirror_rows, on_threads, serial_product
from ntkit.errors import InputError

from ._features import PairFeatures, Tile, fit_features, tiles
from ._pairs import Pairs
from ._sketch import Sketch, sketch_size

__all__ = ["PairRegression", "Triangle"]

_TILE_ENTRIES = SERIAL_ENTRIES
# Rows triangularised at once; taller blocks do not fit into the cache.
_BLOCK_ROWS = SERIAL_ENTRIES // 4


class PairRegression:
    r"""Least squares of the targets :math:`T_{ij}` on the pair features of section D.3 of [1]_ and a constant.

    .. math:: Z(x, x') = \bar T + \sum_f \beta_f \bigl(f(x, x') - \bar f\bigr), \qquad
              \beta = \arg\min \sum_{i,j} \bigl(T_{ij} - Z(x_i, x_j)\bigr)^2

    over all ordered training pairs, i = j included; bars are means over them. The paper does not mention the constant, which
    makes Z independent of the origins of the features and costs nothing.

    ``solver="exact"`` streams the pairs through a QR decomposition, whose triangle holds the same information as the normal
    equations without squaring the condition number: the features are nearly dependent
    (:math:`\|x - x'\|^2 = \|x\|^2 + \|x'\|^2 - 2 x^T x'`, cosine and angle). Directions in which they vary, over their size,
    by less than :math:`\varepsilon^{2/3}` (:math:`\varepsilon` the machine epsilon of the inputs) are not used: among the
    remaining solutions, the one with the smallest coefficients is taken. ``solver="fjlt"`` is the sketch of the paper
    (:class:`~ntkit._src.labels._sketch.Sketch`), with a relative error of about eps.

    Parameters
    ----------
    components : bool
        Whether to add the features of the first five principal components (FJLT-V2).
    solver : {"exact", "fjlt"}
    eps : float
        Of the sketch.
    generator : torch.Generator, optional
        Of the sketch.

    Attributes
    ----------
    features
        The features, with the statistics of the training inputs that they use.
    means, coefficients
        Mean and coefficient of each feature, shape (p,), float64.
    target_mean
        The mean target.
    r_squared
        The fraction of the targets' variance that is explained; with ``solver="fjlt"``, that of the sketched system.
    rank
        Number of directions of the features in use, at most p.

    References
    ----------
    .. [1] Chen, He, Su, "Label-Aware Neural Tangent Kernel: Toward Better Generalization and Local Elasticity", 2020.
    """

    features: PairFeatures
    means: Tensor
    coefficients: Tensor
    target_mean: float
    r_squared: float
    rank: int

    def __init__(
        self, components: bool, solver: str = "exact", eps: float = 0.1, generator: torch.Generator | None = None
    ) -> None:
        self._components = components
        self._solver = solver
        self._eps = eps
        self._generator = generator

    def fit(self, pairs: Pairs, labels: Tensor) -> PairRegression:
        """Fit to all ordered pairs of ``pairs.x1``, shape (n, ...), with the targets ``labels @ labels.T``."""
        _check_gradients(pairs)
        with torch.no_grad():
            self.features = fit_features(pairs.x1, self._components)
            parts, features = tiles(pairs, _TILE_ENTRIES), self.features.of(pairs)
            width = len(self.features.names) + 2

            def design(tile: Tile) -> Tensor:
                return _design(features(tile), serial_product(labels[tile[0]], labels[tile[1]]))

            def triangle(own: list[Tile]) -> Tensor:
                rows = Triangle(width)
                for tile in own:
                    rows.add(design(tile))
                return rows.value

            if self._solver == "fjlt":
                sketch = Sketch(
                    sketch_size(width, self._eps), width, len(labels) * (len(labels) + 1) // 2, self._generator
                )
                for tile in parts:
                    sketch.add(design(tile))
                found = [sketch.value]
            else:
                count = torch.get_num_threads()
                found = on_threads(triangle, [parts[number::count] for number in range(min(count, len(parts)))])
            self._solve(torch.linalg.qr(torch.cat(found), mode="r").R, torch.finfo(pairs.k.dtype).eps ** (2 / 3))
        return self

    def _solve(self, triangle: Tensor, tolerance: float) -> None:
        """Read least squares off the triangle of the columns (1, features, target)."""
        # As the first column is constant, the rows below the first are the triangle of the centred columns.
        sizes = triangle[:, 1:-1].norm(dim=0)
        sizes = torch.where(sizes > 0, sizes, 1)
        centered, target = triangle[1:, 1:-1] / sizes, triangle[1:, -1]
        left, values, right = torch.linalg.svd(centered, full_matrices=False)
        used = values > tolerance
        along = left.T @ target
        scaled = right.T @ torch.where(used, along / torch.where(used, values, 1), 0)
        self.coefficients = scaled / sizes
        self.means, self.target_mean = triangle[0, 1:-1] / triangle[0, 0], float(triangle[0, -1] / triangle[0, 0])
        self.rank = int(used.sum())
        whole = float(target @ target)
        self.r_squared = float((along[used] ** 2).sum()) / whole if whole > 0 else 0.0

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return Z, shape (n1, n2), of the dtype of the base kernel."""
        _check_gradients(pairs)
        means, slopes = self.means.tolist(), self.coefficients.tolist()
        with torch.no_grad():
            out, features = torch.empty_like(pairs.k), self.features.of(pairs)

        def fill(tile: Tile) -> None:
            values = torch.full_like(out[tile], self.target_mean, dtype=torch.float64)
            for feature, mean, slope in zip(features(tile), means, slopes, strict=True):
                values.add_(feature.double() - mean, alpha=slope)
            out[tile] = values.to(out.dtype)
            if pairs.x2 is None:
                mirror_rows(out, tile[0].start, tile[0].stop)

        on_threads(fill, tiles(pairs, _TILE_ENTRIES))
        return out


@dataclass
class Triangle:
    """The triangle R of A = Q R, for a matrix A that comes in blocks of rows.

    Examples
    --------
    >>> triangle = Triangle(2)
    >>> triangle.add(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64))
    >>> triangle.add(torch.tensor([[0.0], [2.0]], dtype=torch.float64))
    >>> triangle.value.abs()
    tensor([[5., 0.],
            [0., 2.]], dtype=torch.float64)
    """

    width: int

    def __post_init__(self) -> None:
        self.value = torch.zeros(self.width, self.width, dtype=torch.float64)

    def add(self, block: Tensor) -> None:
        """Add rows of A, given as columns: shape (p, m), float64, on the CPU; they are overwritten."""
        triangles = [_orthogonalise(part.numpy()) for part in block.split(_BLOCK_ROWS, dim=1)]
        self.value = torch.from_numpy(_orthogonalise(np.hstack([self.value.numpy().T, *(one.T for one in triangles)])))


def _orthogonalise(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R of A = Q R by modified Gram-Schmidt; A is given by its columns as rows and overwritten with those of Q.

    Its R is as accurate as Householder's. LAPACK would start its own threads for each block.
    """
    triangle = np.zeros((len(columns), len(columns)))
    for index, column in enumerate(columns):
        size = triangle[index, index] = np.sqrt(np.einsum("i,i", column, column))
        if size > 0:
            column /= size
        rest = columns[index + 1 :]
        along = triangle[index, index + 1 :] = np.einsum("ij,j->i", rest, column)
        for other, part in zip(rest, along, strict=True):
            other -= part * column
    return triangle


def _design(features: list[Tensor], targets: Tensor) -> Tensor:
    """Return the columns (1, features, target) of a tile as rows, shape (p + 2, pairs), float64 on the CPU.

    Pairs right of the square on the diagonal also represent their mirror images.
    """
    design = np.empty((len(features) + 2, *targets.shape))
    design[0] = 1
    for row, values in zip(design[1:], (*features, targets), strict=True):
        row[:] = values.cpu().numpy()
    design[:, :, targets.shape[0] :] *= 2**0.5
    return torch.from_numpy(design.reshape(len(design), -1))


def _check_gradients(pairs: Pairs) -> None:
    if torch.is_grad_enabled() and (pairs.x1.requires_grad or pairs.k.requires_grad):
        raise InputError(
            "a label-aware kernel on pair features has no gradients. Got inputs or a base kernel that require them: "
            "write x.detach(), or compute inside torch.no_grad()."
        )
