"""The dual coefficients of kernel regression, with the leave-one-out predictions from the same factorisation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import as_columns
from ntkit._src.dynamics import LeaveOneOut, SquaredError
from ntkit._src.solvers import best_factor, check_gram, check_right_hand_side, factorize_in_place, inverse_diagonal

from ._tuning import leave_each_out

__all__ = ["DualFit", "fit_dual", "in_place"]

_LARGE = 1024


@dataclass(frozen=True)
class DualFit:
    """The result of a fit.

    Attributes
    ----------
    dual
        The coefficients a in f(x) = K(x, X) a, shape (n,) or (n, k) like the targets.
    left_out
        The prediction for each point by the model without it, shaped like the targets; None if not requested.
    jitter
        What was added to the ridge because the matrix is singular.
    status
        How the system was solved, in a sentence.
    """

    dual: Tensor
    left_out: Tensor | None
    jitter: float
    status: str


def in_place(gram: Tensor) -> bool:
    """Return whether a matrix is factorised in place: on the CPU, and so large that a second one matters."""
    return gram.device.type == "cpu" and gram.is_contiguous() and len(gram) >= _LARGE


def fit_dual(
    gram: Tensor,
    y: Tensor,
    ridge: float,
    time: float,
    left_out: bool,
    known: LeaveOneOut | None = None,
    owned: bool = False,
) -> DualFit:
    r"""Fit kernel regression, at its end or stopped at a finite time of gradient flow.

    The leave-one-out predictions :math:`y_i - a_i / (A^{-1})_{ii}` use the diagonal of the inverse from the factor of the
    fit, at a third of the cost of computing it from the matrix.

    Parameters
    ----------
    gram : Tensor of shape (n, n)
    y : Tensor of shape (n,) or (n, k)
    ridge : float
        Relative to trace(K)/n.
    time : float
        Infinity is kernel regression.
    left_out : bool
        Whether to return the leave-one-out predictions too.
    known : LeaveOneOut, optional
        Those of the tuning, if it computed them. Default None.
    owned : bool
        Whether the matrix may be overwritten: a large one is then factorised in place, without a second one. Default False.
    """
    predictions = None if known is None or not left_out else known.predictions[known.best]
    if math.isfinite(time):
        flow = SquaredError(gram, as_columns(y), ridge, owned=False)
        dual = flow.weights([time], None)[0].reshape(y.shape)
        if left_out and predictions is None:
            found = leave_each_out(gram, y, [ridge], [time])
            predictions = found.predictions[found.best]
        return DualFit(dual, predictions, 0.0, flow.status)
    check_right_hand_side(y, check_gram(gram))
    if owned and in_place(gram):
        fit = _fit_in_place(gram, y, ridge, left_out, predictions)
        if fit is not None:
            return fit
    factor, solution = best_factor(gram, y, ridge, stacklevel=7)
    if left_out and predictions is None:
        if factor.jitter:
            # A singular matrix was solved with jitter, which is part of the fitted model's ridge.
            found = leave_each_out(gram, y, [ridge + factor.jitter], [time])
            predictions = found.predictions[found.best]
        else:
            inverse = inverse_diagonal(factor.lower, overwrite=True)
            predictions = y - solution.value / (inverse if y.ndim == 1 else inverse[:, None])
    return DualFit(solution.value, predictions, factor.jitter, str(solution.status))


def _fit_in_place(gram: Tensor, y: Tensor, ridge: float, left_out: bool, known: Tensor | None) -> DualFit | None:
    """Fit in the memory of the matrix; return None and leave the matrix intact if jitter is needed."""
    factor = factorize_in_place(gram, ridge)
    if factor is None:
        return None
    dual, residual = factor.solve(as_columns(y))
    if not residual <= torch.finfo(gram.dtype).eps ** (1 / 3):
        factor.restore()
        return None
    predictions = known
    if left_out and known is None:
        predictions = (as_columns(y) - dual / factor.inverse_diagonal()[:, None]).reshape(y.shape)
    status = f"Solved by Cholesky factorisation in place; no jitter was needed; relative residual {residual:.1e}."
    return DualFit(dual.reshape(y.shape), predictions, 0.0, status)
