"""Kernel regression: with the whole Gram matrix in memory, or of many rows by a solver that reads parts of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ntkit._src.common import as_columns, check_choice, check_gram_memory, check_pairs, data_splits
from ntkit._src.dynamics import LeaveOneOut, SquaredError, flow_filter
from ntkit._src.gram import GramOperator
from ntkit._src.kernels import InfiniteWidthKernel
from ntkit._src.solvers import (
    METHODS,
    Falkon,
    Method,
    Nystrom,
    Solution,
    Spectrum,
    best_factor,
    check_gram,
    check_right_hand_side,
    decompose,
    factorize,
    factorize_in_place,
    inverse_diagonal,
    solve,
)
from ntkit.errors import InputError

from ._blend import MANY_ROWS, Blend
from ._logistic import MOST_STEPS, fit_logistic, one_hot
from ._training_data import TrainingData
from ._tuner import Choice, EvidenceTuner, Tuner, leave_each_out

_LARGE = 1024


@dataclass(frozen=True, eq=False)
class Factor:
    """What the variance of a prediction needs: A = L L^T, or the eigenvectors of K for a flow that was stopped."""

    matrix: Tensor  # L in its lower triangle, whatever is above; or the eigenvectors V. Shape (n, n)
    weights: Tensor | None = None  # the filter that the flow applies to the eigenvalues, shape (n,); None for L

    @classmethod
    def of_flow(cls, spectrum: Spectrum, ridge: float, time: float) -> Factor:
        """Return the factor of a flow stopped at a time; K(x, X) has no component where an eigenvalue is only rounding."""
        learnt = flow_filter(spectrum.shifted(ridge), 2 * time)
        return cls(spectrum.vectors, torch.where(spectrum.clean != 0, learnt, 0))

    def explained(self, cross: Tensor) -> Tensor:
        """Return k A_2t k^T, shape (m,), for rows k = K(x, X), shape (m, n), the coefficients at time t being A_t Y."""
        if self.weights is not None:
            return ((cross @ self.matrix) ** 2) @ self.weights
        half: Tensor = torch.linalg.solve_triangular(self.matrix, cross.T, upper=False)
        return (half**2).sum(0)


@dataclass(frozen=True)
class DualFit:
    """The result of a fit."""

    dual: Tensor  # a in f(x) = K(x, X) a, shape (n,) or (n, k) like the targets; of the centres alone if there are any
    # The prediction for each point by a model without it, shaped like the targets; NaN for points that no model left out.
    left_out: Tensor | None
    jitter: float  # what was added to the ridge because the matrix is singular
    status: str
    factor: Factor | None = None  # None if the leave-one-out predictions took its memory, or if the solver has none
    centres: Tensor | None = None  # their row numbers, shape (M,); None for all rows


def fit_exactly(data: TrainingData, tuner: Tuner) -> tuple[Choice, DualFit]:
    """Choose what is left open, and solve for the coefficients by a factorisation of the whole matrix."""
    n, y, weighting = len(data.y), data.y, data.weighting
    # Another kernel than a network's may return a matrix that it keeps.
    owned = isinstance(data.source.kernel, InfiniteWidthKernel)
    # K, overwritten by its factor; or K and its factor; or its eigenvectors and the workspace of the eigensolver.
    matrices = 4 if tuner.spectral else 1 if owned and y.device.type == "cpu" else 2
    check_gram_memory(n, n, y.dtype, y.device, matrices=matrices - (data.source.kernel is None), what="a fit")
    choice = tuner.choose_kernel(data.source, data.points, y, weighting.weights)
    with torch.no_grad():
        gram = check_pairs(data.gram(choice.kernel), (n, n))
        unit = weighting.ridge_unit(gram.diagonal())
        system = weighting.apply_to_gram(gram, owned)
        owned = owned or system is not gram
        columns = weighting.scale(y)
        del gram
        choice = tuner.choose_ridge(choice, system, columns, unit)
        known = choice.record if isinstance(choice.record, LeaveOneOut) else None
        blend = choice.record if isinstance(choice.record, Blend) else None
        if blend is not None and blend.logistic:
            fit = _fit_logistic(system, y, unit * choice.ridge, weighting.roots)
        else:
            wanted = data.left_out and blend is None
            fit = fit_dual(system, columns, unit * choice.ridge, choice.time, wanted, known, owned)
    left_out = None if fit.left_out is None else weighting.scale(fit.left_out, -1)
    if blend is not None:  # closed forms do not know that the metrics have seen the labels
        left_out = blend.left_out(y)
    return choice, DualFit(weighting.scale(fit.dual), left_out, fit.jitter / unit, fit.status, fit.factor)


def _fit_logistic(gram: Tensor, y: Tensor, ridge: float, roots: Tensor | None) -> DualFit:
    """Fit the logistic regression of encoded classes; its scores are the logits over the number of classes."""
    classes, scale = one_hot(y), float(gram.diagonal().double().mean())
    value, steps = fit_logistic(gram, classes, ridge * scale, roots)
    ended = "solved by" if steps < MOST_STEPS else "stopped after"
    status = f"Logistic regression: {ended} {steps} steps of Newton's method with a bound of the Hessian."
    return DualFit((value / max(2, classes.shape[1])).reshape(y.shape), None, 0.0, status)


def fit_dual(
    gram: Tensor,
    y: Tensor,
    ridge: float,
    time: float,
    left_out: bool,
    known: LeaveOneOut | None = None,
    owned: bool = False,
) -> DualFit:
    """Fit kernel regression of targets, shape (n,) or (n, k), at its end or stopped at a finite time of gradient flow.

    The leave-one-out predictions :math:`y_i - a_i / (A^{-1})_{ii}`, computed unless they are ``known`` from the tuning, use the
    diagonal of the inverse from the factor of the fit, at a third of the cost of computing it from the matrix. The ridge is
    relative to trace(K)/n. An ``owned`` matrix, shape (n, n), may be overwritten: a large one is then factorised in place.
    """
    predictions = None if known is None or not left_out else known.predictions[known.best]
    if math.isfinite(time):
        flow = SquaredError(gram, as_columns(y), ridge, owned=False)
        dual = flow.weights([time], None)[0].reshape(y.shape)
        if left_out and predictions is None:
            found = leave_each_out(gram, y, [ridge], [time])
            predictions = found.predictions[found.best]
        return DualFit(dual, predictions, 0.0, flow.status, Factor.of_flow(flow.spectrum, ridge, time))
    check_right_hand_side(y, check_gram(gram))
    if owned and gram.device.type == "cpu" and gram.is_contiguous() and len(gram) >= _LARGE:
        fit = _fit_in_place(gram, y, ridge, left_out, predictions)
        if fit is not None:
            return fit
    factor, solution = best_factor(gram, y, ridge, stacklevel=8)
    kept: Factor | None = Factor(factor.lower)
    if left_out and predictions is None:
        kept = None
        if factor.jitter:
            # A singular matrix was solved with jitter, which is part of the fitted model's ridge.
            found = leave_each_out(gram, y, [ridge + factor.jitter], [time])
            predictions = found.predictions[found.best]
        else:
            inverse = inverse_diagonal(factor.lower, overwrite=True)
            predictions = y - solution.value / (inverse if y.ndim == 1 else inverse[:, None])
    return DualFit(solution.value, predictions, factor.jitter, str(solution.status), kept)


def factor_of(gram: Tensor, ridge: float, time: float) -> Factor:
    """Return the factor of a fit again, for a model that was stored without it; the ridge includes the jitter."""
    return Factor(factorize(gram, ridge).lower) if math.isinf(time) else Factor.of_flow(decompose(gram), ridge, time)


def _fit_in_place(gram: Tensor, y: Tensor, ridge: float, left_out: bool, known: Tensor | None) -> DualFit | None:
    """Fit in the memory of the matrix; return None and leave the matrix intact if jitter is needed."""
    factor = factorize_in_place(gram, ridge)
    if factor is None:
        return None
    dual, residual = factor.solve(as_columns(y))
    if not residual <= torch.finfo(gram.dtype).eps ** (1 / 3):
        factor.restore()
        return None
    predictions, kept = known, Factor(factor.memory.mT)
    if left_out and known is None:
        predictions = (as_columns(y) - dual / factor.inverse_diagonal()[:, None]).reshape(y.shape)
    status = f"Solved by Cholesky factorisation in place; no jitter was needed; relative residual {residual:.1e}."
    return DualFit(dual.reshape(y.shape), predictions, 0.0, status, None if left_out and known is None else kept)


_SOLVERS = ("auto", "cholesky", "cg", "nystrom", "falkon", "eigenpro")
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
    check_choice("solver", solver, _SOLVERS, ", a Method, or None")
    if solver == "auto" and n_centres is None:
        return solver
    method = Nystrom() if solver == "auto" else METHODS[solver]()
    if n_centres is None:
        return method
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
    blend = choice.record if isinstance(choice.record, Blend) else None
    gram = data.operator(choice.kernel)
    ridges = tuner.ridges(y.dtype) if blend is None else [factor * blend.ridge for factor in MANY_ROWS]
    left_out: Tensor | None = None
    if len(ridges) > 1 or data.left_out:
        held, found = _held_out(gram, y, ridges, method)
        errors = {ridge: float((as_columns(one - y[held]).double() ** 2).mean()) for ridge, one in found.items()}
        best = min(errors, key=lambda ridge: errors[ridge] if math.isfinite(errors[ridge]) else math.inf)
        choice = replace(choice, ridge=best, record=errors if blend is None else choice.record)
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
