"""Kernel regression of many rows: a solver that fits into memory, and a ridge chosen on held-out rows."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_choice, data_splits
from ntkit._src.gram import GramOperator
from ntkit._src.solvers import CG, BlockedCholesky, EigenPro, Falkon, Method, Nystrom, Solution, solve
from ntkit.errors import InputError

from ._regression import DualFit
from ._training_data import TrainingData
from ._tuner import Choice, EvidenceTuner, Tuner

_METHODS: dict[str, Method] = {
    "auto": Nystrom(),
    "cholesky": BlockedCholesky(),
    "cg": CG(),
    "nystrom": Nystrom(),
    "falkon": Falkon(),
    "eigenpro": EigenPro(),
}
_HELD_OUT, _MOST_HELD_OUT = 0.1, 20_000
_MOST_TUNED = 200_000
"""Rows that ridges are tried on. The best is the noise over the kernel's scale, which more rows do not change."""
_BLOCK_BYTES = 1 << 27


def read_method(solver: str | Method, n_centres: int | None = None) -> str | Method:
    """Return the method that the parameters name, or raise an error that lists them."""
    if isinstance(solver, Method):
        if n_centres is not None:
            raise InputError("n_centres needs a solver's name. Got both: write solver=Nystrom(n_centres).")
        return solver
    check_choice("solver", solver, _METHODS, ", a Method, or None")
    if n_centres is None:
        return "auto" if solver == "auto" else _METHODS[solver]
    method = _METHODS[solver]
    if not isinstance(method, (Nystrom, Falkon)):
        raise InputError(f"n_centres goes with solver='nystrom' or 'falkon'. Got solver={solver!r}.")
    return replace(method, n_centres=n_centres)


def fit_large(data: TrainingData, tuner: Tuner, method: str | Method) -> tuple[Choice, DualFit]:
    """Solve by one of the solvers for many rows, with the ridge that is best on held-out rows if there are several.

    The gains, if the tuner chooses them, are those of a few rows. The left-out predictions are those of the held-out rows.
    """
    y = data.y
    if not data.weighting.plain or math.isfinite(tuner.given.time):
        raise InputError(
            "solver= is for points without weights or noise of their own, and for fits without a stopping time. "
            "Leave solver and n_centres out."
        )
    if isinstance(tuner, EvidenceTuner):
        raise InputError("tune='evidence' needs the whole Gram matrix. With solver= write tune='loo' or 'auto'.")
    choice = tuner.choose_kernel(data.source, data.x, y, None)
    gram, ridges = data.operator(choice.kernel), tuner.ridges(y.dtype)
    left_out: Tensor | None = None
    if len(ridges) > 1 or data.left_out:
        held, found = _held_out(gram, y, ridges, method)
        errors = {ridge: float((as_columns(one - y[held]).double() ** 2).mean()) for ridge, one in found.items()}
        best = min(errors, key=lambda ridge: errors[ridge] if math.isfinite(errors[ridge]) else math.inf)
        choice = replace(choice, ridge=best, record=errors)
        left_out = torch.full_like(y, math.nan)
        left_out[held] = found[best].to(y)
    solution = solve(gram, y, method=method, ridge=choice.ridge)
    jitter = solution.stats.get("jitter", 0.0)
    return choice, DualFit(solution.value, left_out, jitter, str(solution.status), None, solution.centres)


def _held_out(
    gram: GramOperator, y: Tensor, ridges: list[float], method: str | Method
) -> tuple[Tensor, dict[float, Tensor]]:
    """Return the numbers of some rows, shape (h,), and for each ridge their predictions by a fit without them."""
    n = len(y)
    ((fitted, left_out),) = data_splits(n, min(_HELD_OUT, _MOST_HELD_OUT / n), 0)
    rest, held = _thinned(torch.from_numpy(fitted), _MOST_TUNED), torch.from_numpy(left_out)
    part, targets = gram.restricted(rest), y[rest]
    if isinstance(method, (Nystrom, Falkon)) and method.n_centres is not None:
        method = replace(method, n_centres=min(method.n_centres, len(rest)))  # fewer rows than the fit has
    if isinstance(method, Nystrom):
        system = method.set_up(part, ridges[0], targets)
        solutions = {ridge: system.with_ridge(ridge).solve(targets) for ridge in ridges}
    else:
        solutions = {ridge: solve(part, targets, method=method, ridge=ridge) for ridge in ridges}
    return held, {ridge: _predicted(gram, held, rest, solution) for ridge, solution in solutions.items()}


def _predicted(gram: GramOperator, rows: Tensor, fitted: Tensor, solution: Solution) -> Tensor:
    """Return the predictions for some rows by a fit of others, shape (m,) or (m, k), a block of rows at a time."""
    points = fitted if solution.centres is None else fitted[solution.centres.to(fitted.device)]
    blocks = rows.split(max(64, _BLOCK_BYTES // (8 * len(points))))
    return torch.cat([gram.block(block, points).to(solution.value.dtype) @ solution.value for block in blocks])


def _thinned(rows: Tensor, most: int) -> Tensor:
    """Return at most so many of the rows, evenly."""
    return rows if len(rows) <= most else rows[torch.linspace(0, len(rows) - 1, most).round().long()]
