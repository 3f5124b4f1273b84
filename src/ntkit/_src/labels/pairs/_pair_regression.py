"""Regression of "same class?" over all pairs without holding them: on pair features, or on the base kernel itself."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import SERIAL_ENTRIES, mirror_rows, on_threads, serial_product
from ntkit._src.solvers import solve
from ntkit.errors import InputError

from ._features import PairFeatures, Tile, fit_features, tiles
from ._pairs import Pairs

_TILE_ENTRIES = SERIAL_ENTRIES
# Rows triangularised at once; taller blocks do not fit into the cache.
_BLOCK_ROWS = SERIAL_ENTRIES // 4


class PairRegression:
    r"""Least squares of the targets :math:`T_{ij}` on the pair features of section D.3 of Chen, He and Su (2020) and a constant.

    .. math:: Z(x, x') = \bar T + \sum_f \beta_f \bigl(f(x, x') - \bar f\bigr), \qquad
              \beta = \arg\min \sum_{i,j} \bigl(T_{ij} - Z(x_i, x_j)\bigr)^2

    over all ordered training pairs, i = j included; bars are means over them. The paper does not mention the constant, which
    makes Z independent of the origins of the features and costs nothing. ``components`` adds the features of the first five
    principal components (FJLT-V2).

    ``solver="exact"`` streams the pairs through a QR decomposition, whose triangle holds the same information as the normal
    equations without squaring the condition number: the features are nearly dependent
    (:math:`\|x - x'\|^2 = \|x\|^2 + \|x'\|^2 - 2 x^T x'`, cosine and angle). Directions in which they vary, over their size,
    by less than :math:`\varepsilon^{2/3}` (:math:`\varepsilon` the machine epsilon of the inputs) are not used: among the
    remaining solutions, the one with the smallest coefficients is taken. ``solver="fjlt"`` is the sketch of the paper
    (:class:`Sketch`), with a relative error of about eps.
    """

    features: PairFeatures
    means: Tensor  # of each feature, shape (p,), float64
    coefficients: Tensor  # of each feature, shape (p,), float64
    target_mean: float
    r_squared: float  # the fraction of the targets' variance that is explained; for "fjlt" that of the sketched system
    rank: int  # number of directions of the features in use, at most p

    def __init__(
        self, components: bool, solver: str = "exact", eps: float = 0.1, generator: torch.Generator | None = None
    ) -> None:
        self._components, self._solver, self._eps, self._generator = components, solver, eps, generator

    def fit(self, pairs: Pairs, labels: Tensor) -> PairRegression:
        """Fit to all ordered pairs of ``pairs.x1``, shape (n, ...), with the targets ``labels @ labels.T``."""
        _check_gradients(pairs)
        with torch.no_grad():
            self.features = fit_features(pairs.x1, self._components)
            parts, features = tiles(pairs, _TILE_ENTRIES), self.features.of(pairs)
            width = len(self.features.names) + 2

            def design(tile: Tile) -> Tensor:
                return _design(features(tile), serial_product(labels[tile[0]], labels[tile[1]]))

            if self._solver == "fjlt":
                rows = len(labels) * (len(labels) + 1) // 2
                sketch = Sketch(sketch_size(width, self._eps), width, rows, self._generator)
                for tile in parts:
                    sketch.add(design(tile))
                found = [sketch.value]
            else:
                count = torch.get_num_threads()
                shares = [parts[number::count] for number in range(min(count, len(parts)))]
                found = on_threads(lambda own: triangle_of(width, map(design, own)), shares)
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


def triangle_of(width: int, blocks: Iterable[Tensor]) -> Tensor:
    """Return R of A = Q R, for rows of A in blocks, given as columns: shape (width, m), float64, on the CPU; overwritten."""
    value = np.zeros((width, width))
    for block in blocks:
        triangles = [_orthogonalise(part.numpy()) for part in block.split(_BLOCK_ROWS, dim=1)]
        value = _orthogonalise(np.hstack([value.T, *(one.T for one in triangles)]))
    return torch.from_numpy(value)


def _orthogonalise(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return R of A = Q R by modified Gram-Schmidt, as accurate as Householder's; the columns of A, given as rows, become Q's."""
    triangle = np.zeros((len(columns), len(columns)))  # LAPACK would start its own threads for each block
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
    """Return the columns (1, features, target) of a tile as rows, shape (p + 2, pairs), float64 on the CPU."""
    design = np.empty((len(features) + 2, *targets.shape))
    design[0] = 1
    for row, values in zip(design[1:], (*features, targets), strict=True):
        row[:] = values.cpu().numpy()
    design[:, :, targets.shape[0] :] *= 2**0.5  # right of the square on the diagonal: their mirror images too
    return torch.from_numpy(design.reshape(len(design), -1))


def _check_gradients(pairs: Pairs) -> None:
    if torch.is_grad_enabled() and (pairs.x1.requires_grad or pairs.k.requires_grad):
        raise InputError(
            "a label-aware kernel on pair features has no gradients. Got inputs or a base kernel that require them: "
            "write x.detach(), or compute inside torch.no_grad()."
        )


_LONGEST_BLOCK = 2**14


def walsh_hadamard(x: Tensor) -> Tensor:
    r"""Multiply the last dimension, a power of two m, by :math:`H_{ij} = (-1)^{\langle i, j \rangle}/\sqrt m`, i, j in bits."""
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
    r"""The product :math:`P H D A` of Ailon and Chazelle's transform (2009) with a matrix A that comes in blocks of rows.

    D has random signs on its diagonal; H is a Walsh-Hadamard transform, which spreads every row over its block; P is sparse:
    a fraction :math:`q = \min(1, \log^2 N / N)` of its entries is drawn from a normal distribution of variance
    :math:`1/(q k)`, so that :math:`E\, \|P H D v\|^2 = \|v\|^2`. Least squares with the k rows of P H D A instead of the N
    rows (``total``) of A has a residual at most about 1 + eps times the smallest for :func:`sketch_size` rows.

    H is block-diagonal, with blocks of at most 16384 rows, since A is never stored: rows of A that dominate all others are
    spread only over their block. The positions of the entries of P are drawn with replacement.
    """

    def __init__(self, rows: int, columns: int, total: int, generator: torch.Generator | None = None) -> None:
        self._rows, self._generator = rows, generator
        self._density = min(1.0, math.log(max(total, 2)) ** 2 / total)
        self.value = torch.zeros(rows, columns, dtype=torch.float64)

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
        self.value.index_add_(0, places, (mixed[:, sources] * weights).T)


_BLOCK_ENTRIES = 2**20


class KernelRegression:
    r"""KR-V1 or KR-V2, the normalised similarity of Chen, He and Su (2020, D.3), a function of :math:`\varphi = K(x, x')` alone.

    .. math:: Z(\varphi) = \sum_{i,j} w_{ij}\, \psi(\varphi, K_{ij}), \qquad
              \psi(\varphi, \varphi') = \frac{B - (\varphi - \varphi')^2}{n^2 B - \sum_{s,t} (\varphi - K_{st})^2},
              \qquad B = (\max K - \min K)^2

    over all ordered training pairs, i = j included, with :math:`w_{ij}` the targets (V1), or :math:`(v v^T)_{ij}` with
    :math:`v = K^{-1} Y` and Y the label matrix (``inverse``, V2). With :math:`u = (\varphi - \bar K)/\sqrt B` and
    :math:`c_{ij} = (K_{ij} - \bar K)/\sqrt B`,

    .. math:: Z = \frac{S_0 (1 - u^2) + 2 u S_1 - S_2}{n^2 (1 - u^2 + 2 u \mu_1 - \mu_2)}, \qquad
              S_k = \sum_{i,j} w_{ij} c_{ij}^k, \quad \mu_k = \frac{1}{n^2} \sum_{i,j} c_{ij}^k,

    so it takes O(1) per pair, and nothing large cancels: :math:`\mu_1` is zero up to rounding, :math:`\mu_2` the variance.

    On the range of the training pairs every weight :math:`\psi` is nonnegative and they sum to one: V1 is a weighted mean of
    targets, and the denominator is at least :math:`n^2 \min(\max K - \bar K, \bar K - \min K)/\sqrt B > 0`. Beyond, weights turn
    negative, and at :math:`|\varphi - \bar K| = \sqrt{B (1 - \mu_2)}` Z has a pole, just outside the range if only the diagonal
    is far from the mean. A test pair can fall there, if only because an input is longer, so :math:`\varphi` is clipped to
    the range. If K is the same for all training pairs, none is more similar than another: Z is the mean weight.
    """

    low: float
    high: float
    mean: float
    sums: tuple[float, float, float]  # S_0, S_1, S_2
    offset: float  # mu_1
    variance: float  # mu_2
    pairs: int

    def __init__(self, inverse: bool, ridge: float = 0.0) -> None:
        self._inverse, self._ridge = inverse, ridge

    def fit(self, pairs: Pairs, labels: Tensor) -> KernelRegression:
        """Sum over all ordered pairs of ``pairs.k``, shape (n, n), with weights from ``labels``, shape (n, c)."""
        gram = pairs.k.detach()
        vectors = labels
        if self._inverse:
            vectors = solve(gram, labels.to(gram.dtype), ridge=self._ridge).value.double()
        low, high = torch.aminmax(gram)
        self.low, self.high, self.pairs = float(low), float(high), gram.numel()
        self.mean = float(gram.mean(dtype=torch.float64))
        scale, mean, square, first, second = self._scale, 0.0, 0.0, 0.0, 0.0
        size = max(1, _BLOCK_ENTRIES // len(gram))
        for rows, own in zip(gram.split(size), vectors.split(size), strict=True):
            centered = (rows.double() - self.mean) / scale
            mean += float(centered.sum())
            first += float((own * (centered @ vectors)).sum())
            centered.square_()
            second += float((own * (centered @ vectors)).sum())
            square += float(centered.sum())
        self.sums = float((vectors.sum(0) ** 2).sum()), first, second
        self.offset, self.variance = mean / self.pairs, square / self.pairs
        return self

    @property
    def _scale(self) -> float:
        return self.high - self.low if self.high > self.low else 1.0

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return Z, shape (n1, n2), of the dtype of the base kernel; differentiable in it."""
        size = max(1, _BLOCK_ENTRIES // pairs.k.shape[1])
        return torch.cat([self._values(rows) for rows in pairs.k.split(size)])

    def _values(self, k: Tensor) -> Tensor:
        zeroth, first, second = self.sums
        if not self.high > self.low:
            return torch.full_like(k, zeroth / self.pairs)
        u = (k.double().clamp(self.low, self.high) - self.mean) / self._scale
        rest = 1 - u * u
        weights = self.pairs * (rest + 2 * self.offset * u - self.variance)
        return ((zeroth * rest + 2 * first * u - second) / weights).to(k.dtype)
