"""Gaussian expectations of any elementwise function, from tables that are built once and interpolated.

E[f(u) f(v)] depends on three numbers: both variances and the correlation rho = sin(theta). On a cell (q1 and q2 each
within a factor 16, aligned to powers of 16, so a value never depends on the batch it is in) it is analytic in
(log q1, log q2, theta) and a tensor of Chebyshev coefficients represents it near machine precision:

    E = sum_m T_m(2 theta / pi) sum_ij C[m, i, j] T_i(t1) T_j(t2),   t = position of log q in its cell, in [-1, 1].

The inner sums are matrix products, because q1 belongs to rows and q2 to columns of a kernel; the outer sum is
Clenshaw's recurrence, so an entry costs some hundred multiplications and no call of the function.
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ntkit.errors import QuadratureWarning
from ntkit.program import Activation

from ._quadrature import STEP, moments, sector_expectations

__all__ = ["table_dual", "table_mean"]

_OCTAVES = 4  # log2 of the ratio of largest to smallest variance in a cell
_ORDER, _LARGEST_ORDER = 16, 24  # Chebyshev nodes in log q: first choice, and where that is not enough
_ORDERS = (16, 24, 32, 48, 64, 96, 128, 192)  # Chebyshev nodes in theta to choose from
_TAIL = 2e-13  # coefficients below this, relative to the scale of the cell, are dropped
_TOLERANCE = 1e-10  # relative error above which a table warns
_CHUNK = 2**21  # numbers held at once while evaluating
# Off-grid points where a table is compared with a finer rule: positions in the cell, and angles, both ends included.
_CHECK_POSITIONS = (-0.97, -0.31, 0.55, 0.95)
_CHECK_ANGLES = (0.0, 0.07, 0.9, 2.3, math.pi)


# Chebyshev coefficients of E[f f] and of E[f' f'] on one pair of cells, shapes (orders in theta, order, order).
_Table = tuple[Tensor, Tensor]


def _chebyshev(x: Tensor, order: int) -> Tensor:
    """T_0(x), ..., T_{order - 1}(x) in a new last axis."""
    terms = [torch.ones_like(x), x]
    while len(terms) < order:
        terms.append(2 * x * terms[-1] - terms[-2])
    return torch.stack(terms[:order], dim=-1)


def _nodes(order: int) -> Tensor:
    return torch.cos((torch.arange(order, dtype=torch.float64, device="cpu") + 0.5) * (math.pi / order))


def _transform(order: int) -> Tensor:
    """Return the matrix that takes values at the Chebyshev nodes to coefficients."""
    matrix: Tensor = _chebyshev(_nodes(order), order).T * (2 / order)
    matrix[0] /= 2
    return matrix


def _apply(a: Tensor, b: Tensor, c: Tensor, values: Tensor) -> Tensor:
    """Apply one matrix to each of the three axes."""
    result: Tensor = torch.tensordot(a, b @ values @ c.T, dims=1)
    return result


def _angles(order: int) -> Tensor:
    """psi = acos(rho) = pi/2 - theta at the Chebyshev nodes in theta."""
    return (math.pi / 2) * (1 - _nodes(order))


def _deviations(cell: int, position: Tensor) -> Tensor:
    return torch.exp2((cell + (position + 1) / 2) * (_OCTAVES / 2))


@lru_cache(maxsize=256)
def _mean_table(phi: Activation, cell: int) -> Tensor:
    """Chebyshev coefficients of E f(u) in log q on a cell, shape (_LARGEST_ORDER,)."""
    with torch.inference_mode(False), torch.no_grad():
        return _transform(_LARGEST_ORDER) @ moments(phi, _deviations(cell, _nodes(_LARGEST_ORDER)))[0]


@lru_cache(maxsize=256)
def _table(phi: Activation, cell1: int, cell2: int) -> _Table:
    """Build the table of one pair of cells; :class:`QuadratureWarning` if its estimated error is too large."""
    if cell1 > cell2:
        value, slope = _table(phi, cell2, cell1)
        return value.transpose(1, 2), slope.transpose(1, 2)
    with torch.inference_mode(False), torch.no_grad():
        for order in (_ORDER, _LARGEST_ORDER):
            table = _build(phi, cell1, cell2, order)
            error = _error(phi, cell1, cell2, table)
            if error <= _TOLERANCE:
                return table
    _warn(phi, cell1, cell2, error)
    return table


def _build(phi: Activation, cell1: int, cell2: int, order: int) -> _Table:
    s1, s2 = (_deviations(cell, _nodes(order)) for cell in (cell1, cell2))
    scales = (moments(phi, s1)[2:].amax(1) * moments(phi, s2)[2:].amax(1)).sqrt().tolist()
    # Larger deviations make sharper functions of theta: the largest tell how many nodes are needed.
    values = sector_expectations(phi, s1[:1], s2[:1], _angles(_ORDERS[-1]))
    needed = [
        _significant(torch.tensordot(_transform(_ORDERS[-1]), v, dims=1), c)
        for v, c in zip(values, scales, strict=True)
    ]
    angles = next(n for n in _ORDERS if n >= min(max(needed) + 2, _ORDERS[-1]))
    to_q = _transform(order)
    values = sector_expectations(phi, s1, s2, _angles(angles))
    coefficients = [_apply(_transform(angles), to_q, to_q, v) for v in values]
    kept = [_significant(c, scale) for c, scale in zip(coefficients, scales, strict=True)]
    # A copy, because a view would keep the whole tensor in the cache.
    return coefficients[0][: kept[0]].clone(), coefficients[1][: kept[1]].clone()


def _significant(coefficients: Tensor, scale: float) -> int:
    """How many orders in theta matter."""
    size = coefficients.abs().amax(dim=(1, 2))
    large = torch.nonzero(size > _TAIL * scale)
    return int(large[-1]) + 1 if len(large) else 1


def _error(phi: Activation, cell1: int, cell2: int, table: _Table) -> float:
    """Compare a table with a finer rule at points off its grid, which sees both its errors: rule and interpolation."""
    position = torch.tensor(_CHECK_POSITIONS, dtype=torch.float64, device="cpu")
    psi = torch.tensor(_CHECK_ANGLES, dtype=torch.float64, device="cpu")
    s1, s2 = (_deviations(cell, position) for cell in (cell1, cell2))
    fine = (STEP[0] / 1.5, STEP[1] / 1.5)
    exact = sector_expectations(phi, s1, s2, psi, fine)
    squares1, squares2 = (moments(phi, s, fine)[2:] for s in (s1, s2))
    basis = _chebyshev(position, table[0].shape[1])
    error = 0.0
    for i, c in enumerate(table):
        x = _chebyshev(1 - psi * (2 / math.pi), len(c))
        found = _apply(x, basis, basis, c)
        scale = torch.outer(squares1[i], squares2[i]).sqrt()
        error = max(error, float(((found - exact[i]).abs() / scale.clamp_min(1e-300)).max()))
    return error if math.isfinite(error) else math.inf


def _warn(phi: Activation, cell1: int, cell2: int, error: float) -> None:
    low, high = (2.0 ** (_OCTAVES * c) for c in (cell1, cell2 + 1))
    hint = "Is it smooth except at zero? Declare other kinks in Activation(kinks=...), to all digits."
    warnings.warn(
        f"Gaussian expectations of activation {phi} have an estimated relative error of {error:.1e} for variances "
        f"between {low:.3g} and {high:.3g}, more than {_TOLERANCE:.0e}. {hint}",
        QuadratureWarning,
        stacklevel=2,
    )


def _cells(q: Tensor) -> tuple[Tensor, Tensor]:
    """Find the cell of each variance and the Chebyshev basis at its position there, shapes (n,) and (n, _LARGEST_ORDER)."""
    if not bool(torch.isfinite(q).all()):
        raise ValueError("Variances must be finite. Got nan or infinity; check the inputs and the gains w_std, b_std.")
    level = torch.log2(q) / _OCTAVES
    cell = torch.floor(level.detach())
    return cell.long(), _chebyshev(2 * (level - cell) - 1, _LARGEST_ORDER)


def _groups(cell: Tensor) -> list[tuple[int, Tensor]]:
    """Which positions of a flat tensor hold each cell."""
    return [(int(c), torch.nonzero(cell == c).reshape(-1)) for c in torch.unique(cell)]


def _clenshaw(coefficients: Tensor, x: Tensor) -> Tensor:
    """sum_m coefficients[m] T_m(x), the coefficients having a first axis more than x."""
    later, latest = torch.zeros_like(x), torch.zeros_like(x)
    twice = 2 * x
    for c in reversed(coefficients[1:].unbind()):
        later, latest = latest, torch.addcmul(c - later, twice, latest)
    return torch.addcmul(coefficients[0] - later, x, latest)


def _matrix(c: Tensor, basis1: Tensor, basis2: Tensor, x: Tensor) -> Tensor:
    """Entries (rows, columns) whose variances belong to rows (rows, order) and columns (columns, order)."""
    rows = torch.matmul(basis1, c)  # (m, rows, order)
    return _clenshaw(torch.matmul(rows, basis2.T), x)


def _entries(c: Tensor, basis1: Tensor, basis2: Tensor, x: Tensor) -> Tensor:
    """Entries (n,) each with two variances of its own, (n, order) and (n, order)."""
    return _clenshaw((torch.matmul(basis1, c) * basis2).sum(-1), x)


def _chunked(c: Tensor, basis1: Tensor, basis2: Tensor, x: Tensor) -> Tensor:
    """Evaluate in chunks of rows; where a gradient is needed, recompute them in the backward pass to bound memory."""
    rule = _entries if x.ndim == 1 else _matrix
    basis1, basis2 = basis1[:, : c.shape[1]], basis2[:, : c.shape[2]]
    length = max(1, _CHUNK // (len(c) * (c.shape[1] if x.ndim == 1 else max(x.shape[1], 1))))
    parts = []
    for start in range(0, len(x), length):
        rows = slice(start, start + length)
        arguments = (c, basis1[rows], basis2 if x.ndim == 2 else basis2[rows], x[rows])
        if torch.is_grad_enabled() and any(a.requires_grad for a in arguments):
            parts.append(checkpoint(rule, *arguments, use_reentrant=False))
        else:
            parts.append(rule(*arguments))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _look_up(phi: Activation, which: int, x: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """E[f f] (which = 0) or E[f' f'] (1) at x (rows, columns), q1 (rows,), q2 (columns,), or all of shape (n,)."""
    (cell1, basis1), (cell2, basis2) = _cells(q1), _cells(q2)
    out = torch.empty_like(x)
    if x.ndim == 1:
        for c1, c2 in torch.unique(torch.stack([cell1, cell2], dim=1), dim=0).tolist():
            at = torch.nonzero((cell1 == c1) & (cell2 == c2)).reshape(-1)
            out[at] = _chunked(_table(phi, c1, c2)[which].to(x), basis1[at], basis2[at], x[at])
        return out
    groups1, groups2 = _groups(cell1), _groups(cell2)
    if len(groups1) == len(groups2) == 1:
        return _chunked(_table(phi, groups1[0][0], groups2[0][0])[which].to(x), basis1, basis2, x)
    for c1, rows in groups1:
        for c2, columns in groups2:
            block = (rows[:, None], columns)
            out[block] = _chunked(_table(phi, c1, c2)[which].to(x), basis1[rows], basis2[columns], x[block])
    return out


def table_dual(phi: Activation, which: int, theta: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """E[f(u) f(v)] for ``which = 0``, E[f'(u) f'(v)] for ``which = 1``.

    Parameters
    ----------
    phi
        Holds the function f.
    which
        0 for the function, 1 for its derivative.
    theta
        asin of the correlation, any shape.
    q1, q2
        Variances, positive, of as many axes as ``theta`` and broadcastable to it.
    """
    if theta.numel() == 0:
        return torch.zeros_like(theta)
    # Axes along which only q1 varies become rows, those along which both vary (the diagonal of a kernel, pixels of
    # equal position) a batch, the others columns.
    varies = [(n1 > 1, n2 > 1) for n1, n2 in zip(q1.shape, q2.shape, strict=True)]
    batch = [i for i, v in enumerate(varies) if v == (True, True)]
    rows = [i for i, v in enumerate(varies) if v == (True, False)]
    columns = [i for i, v in enumerate(varies) if not v[0]]
    order = batch + rows + columns
    x = (theta * (2 / math.pi)).permute(order)
    sizes = [math.prod(theta.shape[i] for i in axes) for axes in (batch, rows, columns)]
    q1 = q1.permute(order).reshape(sizes[0], sizes[1])
    q2 = q2.expand([theta.shape[i] if i in columns else q2.shape[i] for i in range(theta.ndim)])
    q2 = q2.permute(order).reshape(sizes[0], sizes[2])
    flat = x.reshape(sizes)
    if sizes[0] == 1:
        out = _look_up(phi, which, flat[0], q1[0], q2[0])
    elif sizes[1] * sizes[2] < 64:  # small matrices: the matrix product would not pay for the loop over them
        pairs = torch.broadcast_tensors(flat, q1[:, :, None], q2[:, None, :])
        out = _look_up(phi, which, *(p.reshape(-1) for p in pairs))
    else:
        out = torch.stack([_look_up(phi, which, *block) for block in zip(flat, q1, q2, strict=True)])
    inverse = [order.index(i) for i in range(theta.ndim)]
    return out.reshape(x.shape).permute(inverse)


def table_mean(phi: Activation, q: Tensor) -> Tensor:
    """E f(u) for u ~ N(0, q), q positive of any shape."""
    cell, basis = _cells(q.reshape(-1))
    out = torch.empty_like(cell, dtype=q.dtype)
    for c, at in _groups(cell):
        out[at] = basis[at] @ _mean_table(phi, c).to(q)
    return out.reshape(q.shape)
