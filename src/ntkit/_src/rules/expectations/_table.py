"""Gaussian expectations of any elementwise function, from tables that are built once and interpolated.

E[f(u) f(v)] depends on three numbers: both variances and the correlation rho = sin(theta). On a cell (q1 and q2 each
within a factor 16, aligned to powers of 16, so a value never depends on the batch it is in) it is analytic in
(log q1, log q2, theta) and a tensor of Chebyshev coefficients represents it near machine precision:

    E = sum_m T_m(2 theta / pi) sum_ij C[m, i, j] T_i(t1) T_j(t2),   t = position of log q in its cell, in [-1, 1].

The inner sums are matrix products, because q1 belongs to rows and q2 to columns of a kernel; the outer sum is
Clenshaw's recurrence, so an entry costs some hundred multiplications and no call of the function. Where a function varies
too quickly (a sine at large variances) a table is inaccurate: :func:`tabulated` reports it, and using the table warns or, above
an error of 1e-6, is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ntkit._src.common import constant
from ntkit._src.program import AnyFunction

from ._limits import OCTAVES, TOLERANCE, cell_bounds, cells, report_error, tail
from ._quadrature import STEP, moments, sector_expectations
from ._table_store import Table, load_table, store_table

_ORDER, _LARGEST_ORDER = 16, 24  # Chebyshev nodes in log q: first choice, and where that is not enough
_ORDERS = (16, 24, 32, 48, 64, 96, 128, 192)  # Chebyshev nodes in theta to choose from
_TAIL = 2e-13  # coefficients below this, relative to the scale of the cell, are dropped
_FINE = (STEP[0] / 1.5, STEP[1] / 1.5)  # steps of the rule that measures the error
_RADIUS = 10.1  # how many deviations the rule spans
_TAIL_SHARE = 1e-12  # of the mass of f^2 and f'^2, which may lie beyond
_CHUNK = 2**21  # numbers held at once while evaluating
# Off-grid points where a table is compared with a finer rule: positions in the cell, and angles, both ends included.
_CHECK_POSITIONS = (-0.97, -0.31, 0.55, 0.95)
_CHECK_ANGLES = (0.0, 0.07, 0.9, 2.3, math.pi)


def _chebyshev(x: Tensor, order: int) -> Tensor:
    """T_0(x), ..., T_{order - 1}(x) in a new last axis."""
    terms = [torch.ones_like(x), x]
    while len(terms) < order:
        terms.append(2 * x * terms[-1] - terms[-2])
    return torch.stack(terms[:order], dim=-1)


def _nodes(order: int) -> Tensor:
    return torch.cos((torch.arange(order, dtype=torch.float64, device="cpu") + 0.5) * (math.pi / order))


def _transform(order: int) -> Tensor:
    """Return the matrix that maps values at the Chebyshev nodes to coefficients."""
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
    return torch.exp2((cell + (position + 1) / 2) * (OCTAVES / 2))


@lru_cache(maxsize=256)
@constant
def _mean_table(phi: AnyFunction, cell: int) -> tuple[Tensor, float]:
    """Chebyshev coefficients of E f(u) in log q on a cell, shape (_LARGEST_ORDER,), and their estimated error."""
    if _too_wide(phi, cell):
        return torch.full((_LARGEST_ORDER,), math.nan, dtype=torch.float64), math.inf
    table = _transform(_LARGEST_ORDER) @ moments(phi, _deviations(cell, _nodes(_LARGEST_ORDER)))[0]
    position = torch.tensor(_CHECK_POSITIONS, dtype=torch.float64, device="cpu")
    exact = moments(phi, _deviations(cell, position), _FINE)
    error = (_chebyshev(position, _LARGEST_ORDER) @ table - exact[0]).abs() / exact[2].sqrt().clamp_min(1e-300)
    return table, float(error.max())


def _too_wide(phi: AnyFunction, cell: int) -> bool:
    """Whether, at the largest variance of a cell, the function grows too quickly for the rule or is not finite where it looks."""
    largest = float(_deviations(cell, torch.ones((), dtype=torch.float64, device="cpu")))
    return tail(phi, largest, _RADIUS) > _TAIL_SHARE


@lru_cache(maxsize=256)
@constant
def _accurate(phi: AnyFunction, cell1: int, cell2: int) -> Table | None:
    """Find or build the table of a pair of cells, the first not above the second; None if it would be inaccurate."""
    if (stored := load_table(phi, cell1, cell2)) is not None:
        return stored
    if _too_wide(phi, cell2) or _rule_error(phi, cell1, cell2) > TOLERANCE:
        return None
    for order in (_ORDER, _LARGEST_ORDER):
        table = _build(phi, cell1, cell2, order)
        if _error(phi, cell1, cell2, table) <= TOLERANCE:
            store_table(phi, cell1, cell2, table)
            return table
    return None


@lru_cache(maxsize=64)
@constant
def _inaccurate(phi: AnyFunction, cell1: int, cell2: int) -> tuple[Table, float]:
    """Build a table that is known to be inaccurate, and estimate its error."""
    if _too_wide(phi, cell2):
        return (torch.empty(0), torch.empty(0)), math.inf
    table = _build(phi, cell1, cell2, _ORDER)
    return table, _error(phi, cell1, cell2, table)


def _table(phi: AnyFunction, cell1: int, cell2: int) -> Table:
    """Return the table of a pair of cells; if it is inaccurate, warn each time, or refuse."""
    low, high = min(cell1, cell2), max(cell1, cell2)
    table = _accurate(phi, low, high)
    if table is None:
        table, error = _inaccurate(phi, low, high)
        report_error(phi, cell_bounds(low, high), error)
    return table if cell1 <= cell2 else (table[0].transpose(1, 2), table[1].transpose(1, 2))


def tabulated(phi: AnyFunction, q1: Tensor, q2: Tensor) -> Tensor:
    """Return which pairs of variances, broadcast, have an accurate table: a tensor of booleans."""
    cell1, cell2 = cells(q1), cells(q2)
    good = torch.ones(torch.broadcast_shapes(q1.shape, q2.shape), dtype=torch.bool, device=q1.device)
    for c1 in torch.unique(cell1).tolist():
        for c2 in torch.unique(cell2).tolist():
            here = (cell1 == c1) & (cell2 == c2)
            if bool(here.any()) and _accurate(phi, min(c1, c2), max(c1, c2)) is None:
                good &= ~here
    return good


def mean_tabulated(phi: AnyFunction, q: Tensor) -> Tensor:
    """Return which variances have an accurate table of the mean."""
    cell = cells(q)
    bad = [c for c in torch.unique(cell).tolist() if _mean_table(phi, c)[1] > TOLERANCE]
    return ~torch.isin(cell, torch.tensor(bad, dtype=cell.dtype, device=cell.device))


def _build(phi: AnyFunction, cell1: int, cell2: int, order: int) -> Table:
    s1, s2 = (_deviations(cell, _nodes(order)) for cell in (cell1, cell2))
    scales = (moments(phi, s1)[2:].amax(1) * moments(phi, s2)[2:].amax(1)).sqrt().tolist()
    # Larger deviations make sharper functions of theta: the largest determine how many nodes are needed.
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
    """Return how many orders in theta matter."""
    size = coefficients.abs().amax(dim=(1, 2))
    large = torch.nonzero(size > _TAIL * scale)
    return int(large[-1]) + 1 if len(large) else 1


def _rule_error(phi: AnyFunction, cell1: int, cell2: int) -> float:
    """Measure the error of the rule at the largest variances, where a function varies most: no table would help it."""
    s1, s2 = (_deviations(cell, torch.ones(1, dtype=torch.float64, device="cpu")) for cell in (cell1, cell2))
    return _largest_error(phi, s1, s2, lambda psi: sector_expectations(phi, s1, s2, psi))


def _error(phi: AnyFunction, cell1: int, cell2: int, table: Table) -> float:
    """Measure the error of a table at points off its grid, which sees both its errors: rule and interpolation."""
    position = torch.tensor(_CHECK_POSITIONS, dtype=torch.float64, device="cpu")
    basis = _chebyshev(position, table[0].shape[1])
    s1, s2 = (_deviations(cell, position) for cell in (cell1, cell2))

    def look_up(psi: Tensor) -> Table:
        value, slope = (_apply(_chebyshev(1 - psi * (2 / math.pi), len(c)), basis, basis, c) for c in table)
        return value, slope

    return _largest_error(phi, s1, s2, look_up)


def _largest_error(phi: AnyFunction, s1: Tensor, s2: Tensor, find: Callable[[Tensor], Table]) -> float:
    """Compare E[f f] and E[f' f'] with a finer rule at a few angles, relative to the root mean squares."""
    psi = torch.tensor(_CHECK_ANGLES, dtype=torch.float64, device="cpu")
    exact = sector_expectations(phi, s1, s2, psi, _FINE)
    squares = zip(*(moments(phi, s, _FINE)[2:] for s in (s1, s2)), strict=True)
    scales = [torch.outer(one, two).sqrt().clamp_min(1e-300) for one, two in squares]
    error = max(float(((a - b).abs() / scale).max()) for a, b, scale in zip(find(psi), exact, scales, strict=True))
    return error if math.isfinite(error) else math.inf


def _located(q: Tensor) -> tuple[Tensor, Tensor]:
    """Find the cell of each variance and the Chebyshev basis at its position there, shapes (n,) and (n, _LARGEST_ORDER)."""
    cell = cells(q)
    return cell, _chebyshev(2 * (torch.log2(q) / OCTAVES - cell) - 1, _LARGEST_ORDER)


def _groups(cell: Tensor) -> list[tuple[int, Tensor]]:
    """List each cell with the positions of a flat tensor that hold it."""
    return [(int(c), torch.nonzero(cell == c).reshape(-1)) for c in torch.unique(cell)]


def _clenshaw(coefficients: Tensor, x: Tensor) -> Tensor:
    """sum_m coefficients[m] T_m(x), where the coefficients have one more axis than x, the first."""
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
    """Entries (n,), each with its own two variances, (n, order) and (n, order)."""
    return _clenshaw((torch.matmul(basis1, c) * basis2).sum(-1), x)


def _chunked(c: Tensor, basis1: Tensor, basis2: Tensor, x: Tensor) -> Tensor:
    """Evaluate in chunks of rows; where a gradient is needed, recompute them in the backward pass to bound memory."""
    rule = _entries if x.ndim == 1 else _matrix
    basis1, basis2 = basis1[:, : c.shape[1]], basis2[:, : c.shape[2]]
    length = max(1, _CHUNK // (len(c) * (c.shape[1] if x.ndim == 1 else max(x.shape[1], 1))))
    if len(x) <= length:
        return rule(c, basis1, basis2, x)
    parts = []
    for start in range(0, len(x), length):
        rows = slice(start, start + length)
        arguments = (c, basis1[rows], basis2 if x.ndim == 2 else basis2[rows], x[rows])
        if torch.is_grad_enabled() and any(a.requires_grad for a in arguments):
            parts.append(checkpoint(rule, *arguments, use_reentrant=False))
        else:
            parts.append(rule(*arguments))
    return torch.cat(parts)


def _look_up(phi: AnyFunction, which: int, x: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """E[f f] (which = 0) or E[f' f'] (1) at x (rows, columns), q1 (rows,), q2 (columns,), or all of shape (n,)."""
    (cell1, basis1), (cell2, basis2) = _located(q1), _located(q2)
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


def table_dual(phi: AnyFunction, which: int, theta: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """E[f(u) f(v)] for ``which = 0``, E[f'(u) f'(v)] for ``which = 1``.

    ``theta`` is the arc sine of the correlation, of any shape; the positive variances have as many axes and broadcast to it.
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


def table_mean(phi: AnyFunction, q: Tensor) -> Tensor:
    """E f(u) for u ~ N(0, q), q positive of any shape."""
    cell, basis = _located(q.reshape(-1))
    out = torch.empty_like(cell, dtype=q.dtype)
    for c, at in _groups(cell):
        table, error = _mean_table(phi, c)
        report_error(phi, cell_bounds(c), error)
        out[at] = basis[at] @ table.to(q)
    return out.reshape(q.shape)
