"""What the regressor and the classifier share: the kernel, its tuning, the dual coefficients, scores in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ntkit.dynamics import Evidence, LeaveOneOut, SquaredError, flow_filter
from ntkit.errors import InputError
from ntkit.kernels import Kernel, check_input_shape, fold_rows
from ntkit.solvers import Outcome, Solution, Status, decompose, factorize, solve

from ._settings import build_kernel, build_model, numpy_dtype, read_device, read_dtype
from ._tuning import check_tuning, leave_each_out, tune_by_evidence, tune_by_leave_one_out

__all__ = ["KernelEstimator"]

_BLOCK_BYTES = 2**26
_FEWEST_BLOCK_ROWS = 64


class KernelEstimator(BaseEstimator):
    """Kernel regression f(x) = K(x, X) (K(X, X) + ridge trace(K)/n I)^-1 Y for targets Y that a subclass makes."""

    def __init__(
        self,
        model: nn.Module | None = None,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        ridge: float | str | Sequence[float] = 0.0,
        w_std: float = 2**0.5,
        b_std: float = 0.0,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        stopping_time: float | str | Sequence[float] | None = None,
        tune: str | None = None,
    ) -> None:
        self.model = model
        self.input_shape = input_shape
        self.kernel = kernel
        self.ridge = ridge
        self.w_std = w_std
        self.b_std = b_std
        self.dtype = dtype
        self.device = device
        self.stopping_time = stopping_time
        self.tune = tune

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _fit_targets(self, X: NDArray[Any], targets: NDArray[Any], left_out: bool = False) -> NDArray[Any] | None:
        """Tune, and solve for the dual coefficients; X is validated already, targets have shape (n,) or (n, k).

        With ``left_out``, give the predictions of every point by the model without it, shaped like the targets.
        """
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        ridge, time = check_tuning(self.tune, self.ridge, self.stopping_time)
        kernel = build_kernel(self.kernel, self.model, self.input_shape, X.shape[1], self.w_std, self.b_std)
        if kernel is None and X.shape[0] != X.shape[1]:
            raise InputError(f"kernel='precomputed' needs the square Gram matrix K(X, X) at fit. Got shape {X.shape}.")
        batch, y = self._batch(X, dtype, device), _tensor(targets, dtype, device)
        tuning: LeaveOneOut | Evidence | None = None
        if self.tune == "evidence":
            tuning = self._by_evidence(X, batch, y, ridge)
            kernel, ridge = tuning.limit.ntk if self.kernel == "ntk" else tuning.limit.nngp, tuning.ridge
        with torch.no_grad():
            gram = batch if kernel is None else kernel(batch)
            if tuple(gram.shape) != (len(X), len(X)):
                raise InputError(f"kernel(x) must have shape {(len(X), len(X))}. Got {tuple(gram.shape)}.")
            if self.tune == "loo":
                tuning = tune_by_leave_one_out(gram, y, self.ridge, self.stopping_time)
                ridge, time = tuning.ridge, tuning.time
            solution = _dual(gram, y, ridge, time)
            predictions = None
            if left_out:
                # A singular matrix was solved with jitter, which is a part of the fitted model's ridge.
                whole = ridge + solution.stats["jitter"]
                found = tuning if isinstance(tuning, LeaveOneOut) else leave_each_out(gram, y, [whole], [time])
                predictions = found.predictions[found.best].double().cpu().numpy()
        self.kernel_: Kernel | str = "precomputed" if kernel is None else kernel
        self.X_fit_ = None if kernel is None else X
        self.dual_coef_ = solution.value.cpu().numpy()
        self.ridge_, self.stopping_time_, self.tuning_ = ridge, time, tuning
        self.jitter_ = solution.stats["jitter"]
        self.solution_status_ = solution.status
        return predictions

    def _by_evidence(self, X: NDArray[Any], batch: Tensor, y: Tensor, ridge: float) -> Evidence:
        if not isinstance(self.kernel, str) or self._is_precomputed():
            raise InputError(
                "tune='evidence' chooses the gains of a network, so kernel must be 'ntk' or 'nngp'. Got "
                f"{self.kernel!r}: write tune='loo', which chooses the ridge of any kernel."
            )
        model = build_model(self.model, self.input_shape, X.shape[1])
        which = cast(Literal["ntk", "nngp"], self.kernel)
        return tune_by_evidence(model, batch, y, which, self.w_std, self.b_std, ridge)

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        """Give K(x, X) times the dual coefficients, shape (n,) or (n, k)."""
        check_is_fitted(self)
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        with torch.no_grad():
            dual = _tensor(self.dual_coef_, dtype, device)
            scores = torch.cat([gram @ dual for _, gram in self._blocks(X)])
        # scikit-learn expects float64 whatever the estimator computes in.
        return scores.double().cpu().numpy()

    def _deviations(self, X: ArrayLike) -> NDArray[Any]:
        r"""Give the standard deviation of the Gaussian process with covariance K after training, shape (n,).

        The variance :math:`K(x, x) - K(x, X) A_{2t} K(X, x)`, with the dual coefficients at t being :math:`A_t Y`.
        """
        check_is_fitted(self)
        kernel, dtype, device = self.kernel_, read_dtype(self.dtype), read_device(self.device)
        if not isinstance(kernel, Kernel) or self.X_fit_ is None:
            raise InputError(
                "return_std needs K(x, x), which a precomputed kernel does not give. Pass the kernel itself as kernel=..."
            )
        with torch.no_grad():
            gram = kernel(self._batch(self.X_fit_, dtype, device))
            explained = _explained(gram, self.ridge_ + self.jitter_, 2 * self.stopping_time_)
            variance = torch.cat([kernel.diag(block) - explained(cross) for block, cross in self._blocks(X)])
        # At a training point without ridge the variance is zero, and rounding has no sign.
        return variance.clamp_min(0).sqrt().double().cpu().numpy()

    def _blocks(self, X: ArrayLike) -> Iterator[tuple[Tensor, Tensor]]:
        """Check the rows, and give them with K(x, X) a block at a time."""
        rows = validate_data(self, X, reset=False, dtype=numpy_dtype(self.dtype))
        dtype, device, kernel = read_dtype(self.dtype), read_device(self.device), self.kernel_
        points = None if self.X_fit_ is None else self._batch(self.X_fit_, dtype, device)
        size = max(_FEWEST_BLOCK_ROWS, _BLOCK_BYTES // (len(self.dual_coef_) * dtype.itemsize))
        for start in range(0, len(rows), size):
            block = self._batch(rows[start : start + size], dtype, device)
            yield block, kernel(block, points) if isinstance(kernel, Kernel) else block

    def _batch(self, X: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
        return fold_rows(_tensor(X, dtype, device), check_input_shape(self.input_shape))


def _dual(gram: Tensor, y: Tensor, ridge: float, time: float) -> Solution:
    """Give A_t y: the dual coefficients of gradient flow from zero after the time given."""
    if math.isinf(time):
        return solve(gram, y, ridge=ridge)
    flow = SquaredError(gram, y if y.ndim == 2 else y[:, None], ridge, owned=False)
    value = flow.weights([time], None)[0].reshape(y.shape)
    return Solution(value, Status(Outcome.SOLVED, flow.status), {"jitter": 0.0})


def _explained(gram: Tensor, ridge: float, time: float) -> Callable[[Tensor], Tensor]:
    """Give the function from rows k = K(x, X), shape (m, n), to k A_t k^T, shape (m,)."""
    if math.isinf(time):
        lower = factorize(gram, ridge).lower
        return lambda cross: (torch.linalg.solve_triangular(lower, cross.T, upper=False) ** 2).sum(0)
    spectrum = decompose(gram)
    # K(x, X) has nothing along directions whose eigenvalue is only rounding.
    weights = torch.where(spectrum.clean != 0, flow_filter(spectrum.shifted(ridge), time), 0)
    return lambda cross: ((cross @ spectrum.vectors) ** 2) @ weights


def _tensor(array: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    # A copy only where torch needs one: it cannot hold negative strides and warns about read-only memory.
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device=device, dtype=dtype)
