"""Shared by the regressor and the classifier: the kernel, its tuning, the dual coefficients, scores in blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError as _SklearnNotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from ntkit._src.common import (
    DEPRECATED,
    block_rows,
    check_gram_memory,
    check_pairs,
    fold_rows,
    row_blocks,
    warn_renamed,
)
from ntkit._src.dynamics import Evidence, LeaveOneOut, flow_filter
from ntkit._src.gram import ClusterKernel
from ntkit._src.kernels import InfiniteWidthKernel, Kernel
from ntkit._src.solvers import Method, decompose, factorize
from ntkit.errors import InputError, NotFittedError

from ._inputs import as_batch, as_tensor, read_features
from ._large import fit_large, read_method, shared_tensor
from ._regression import fit_dual
from ._settings import build_kernel, build_module, read_device, read_dtype
from ._tuning import Candidates, check_tuning, ridge_candidates, tune_by_evidence, tune_by_leave_one_out, tune_gains
from ._weighting import Weighting

__all__ = ["KernelEstimator"]


class KernelEstimator(BaseEstimator):
    """Kernel regression f(x) = K(x, X) (K(X, X) + ridge trace(K)/n I)^-1 Y for targets Y that a subclass provides."""

    _client: Any = None

    def __init__(
        self,
        module: nn.Module | None = None,
        *,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        w_std: float | None = None,
        b_std: float | None = None,
        ridge: Candidates = 0.0,
        stopping_time: Candidates = None,
        tune: str | None = None,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        solver: str | Method | None = None,
        n_centres: int | None = None,
        model: nn.Module | None = DEPRECATED,
    ) -> None:
        self.module = module
        self.input_shape = input_shape
        self.kernel = kernel
        self.w_std = w_std
        self.b_std = b_std
        self.ridge = ridge
        self.stopping_time = stopping_time
        self.tune = tune
        self.dtype = dtype
        self.device = device
        self.solver: str | Method | None = solver
        self.n_centres = n_centres
        self.model = model

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        tags.input_tags.sparse = not self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _keeps_rows(self) -> bool:
        """Whether a fit keeps X and therefore needs its own copy: many rows are not copied."""
        return not self._is_precomputed() and self._large_solver() is None

    def _large_solver(self) -> str | Method | None:
        """Return the solver for many rows; None if the whole Gram matrix is to be factorised."""
        return "nystrom" if self.solver is None and self.n_centres is not None else self.solver

    def _network(self) -> nn.Module | None:
        """Return the module, even if it was passed under its former name."""
        if isinstance(self.model, str) and self.model == DEPRECATED:
            return self.module
        warn_renamed("model=", "module=", stacklevel=6)
        if self.module is not None:
            raise InputError("model is the former name of module. Got both: leave model out.")
        return self.model

    def _fit_targets(
        self, X: NDArray[Any], targets: NDArray[Any], weighting: Weighting, left_out: bool = False
    ) -> NDArray[Any] | None:
        """Tune, and solve for the dual coefficients; X has been validated, targets have shape (n,) or (n, k).

        With ``left_out``, return the prediction for every point by the model without it, shaped like the targets.
        """
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        ridge, time = check_tuning(self.tune, self.ridge, self.stopping_time)
        module = self._network()
        kernel = build_kernel(self.kernel, module, self.input_shape_, X.shape[1], self.w_std, self.b_std)
        if kernel is None and X.shape[0] != X.shape[1]:
            raise InputError(f"kernel='precomputed' needs the square Gram matrix K(X, X) at fit. Got shape {X.shape}.")
        solver = self._large_solver()
        if solver is not None:
            return self._fit_large(
                read_method(solver, self.n_centres), kernel, X, targets, weighting, ridge, time, left_out
            )
        # K, overwritten by its factor; or K and its factor; or its eigenvectors and the workspace of the eigensolver.
        owned = isinstance(kernel, InfiniteWidthKernel)
        simple = self.tune in (None, "evidence") and math.isinf(time)
        matrices = (1 if owned and device.type == "cpu" else 2) if simple else 4
        matrices -= self._is_precomputed()
        check_gram_memory(len(X), len(X), dtype, device, matrices=matrices, what="a fit")
        batch, y = as_batch(self, X, device), as_tensor(targets, dtype, device)
        tuning: LeaveOneOut | Evidence | None = None
        if self.tune in ("evidence", "auto") and self._has_gains():
            which = cast(Literal["ntk", "nngp"], self.kernel)
            network = build_module(module, self.input_shape_, X.shape[1])
            if self.tune == "evidence":
                found = tune_by_evidence(network, batch, y, weighting.weights, which, self.w_std, self.b_std, ridge)
                tuning, ridge, limit = found, found.ridge, found.limit
            else:
                limit = tune_gains(network, batch, y, which, self.w_std, self.b_std)
            kernel = limit.ntk if which == "ntk" else limit.nngp
        with torch.no_grad():
            gram = batch if kernel is None else self._placed(kernel)(batch)
            check_pairs(gram, (len(X), len(X)))
            unit = weighting.ridge_unit(gram.diagonal())
            # Another kernel may return a matrix that it keeps.
            system = weighting.apply_to_gram(gram, owned)
            owned = owned or system is not gram
            columns = weighting.scale(y)
            del gram
            if self.tune in ("loo", "auto"):
                tuning = tune_by_leave_one_out(system, columns, self.ridge, self.stopping_time, unit)
                ridge, time = tuning.ridge, tuning.time
            known = tuning if isinstance(tuning, LeaveOneOut) else None
            fit = fit_dual(system, columns, unit * ridge, time, left_out, known, owned)
        self.kernel_: Kernel | str = "precomputed" if kernel is None else kernel
        self.X_fit_ = None if kernel is None else X
        self.dual_coef_: NDArray[Any] = weighting.scale(fit.dual).cpu().numpy()
        self.ridge_, self.stopping_time_ = ridge, time
        self.tuning_: LeaveOneOut | Evidence | dict[float, float] | None = tuning
        self.jitter_ = fit.jitter / unit
        self.solution_status_ = fit.status
        self._weighting = weighting
        return None if fit.left_out is None else weighting.unscale(fit.left_out).double().cpu().numpy()

    def _fit_large(
        self,
        method: str | Method,
        kernel: Kernel | None,
        X: NDArray[Any],
        targets: NDArray[Any],
        weighting: Weighting,
        ridge: float,
        time: float,
        left_out: bool,
    ) -> NDArray[Any] | None:
        """Fit by one of the solvers for many rows; the left-out predictions then cover a block of rows and are NaN elsewhere."""
        if kernel is None or weighting.roots is not None or weighting.noise is not None or math.isfinite(time):
            raise InputError(
                "solver= needs a kernel of inputs, without weights or noise per point and without a stopping time. "
                "Leave solver and n_centres out; a stored Gram matrix goes to ntkit.solve."
            )
        if self.tune == "evidence":
            raise InputError("tune='evidence' needs the whole Gram matrix. With solver= write tune='loo' or 'auto'.")
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        batch = fold_rows(shared_tensor(X), self.input_shape_).to(device=device)
        y = as_tensor(targets, dtype, device)
        if self.tune == "auto" and self._has_gains():
            which = cast(Literal["ntk", "nngp"], self.kernel)
            network = build_module(self._network(), self.input_shape_, X.shape[1])
            limit = tune_gains(network, batch, y, which, self.w_std, self.b_std)
            kernel = limit.ntk if which == "ntk" else limit.nngp
        ridges = ridge_candidates(self.ridge, dtype) if self.tune is not None else [ridge]
        fit = fit_large(self._placed(kernel), batch, y, ridges, method, left_out)
        centres = fit.solution.centres
        self.kernel_ = kernel
        self.X_fit_ = X if centres is None else np.array(X[centres.numpy()])
        self.dual_coef_ = fit.solution.value.cpu().numpy()
        self.ridge_, self.stopping_time_, self.tuning_ = fit.ridge, time, fit.errors or None
        self.jitter_ = fit.solution.stats.get("jitter", 0.0)
        self.solution_status_ = str(fit.solution.status)
        self._weighting = weighting
        if not left_out or fit.held_out is None:
            return None
        predictions = np.full(targets.shape, np.nan)
        rows, values = fit.held_out
        predictions[rows] = values.double().cpu().numpy()
        return predictions

    def _placed(self, kernel: Kernel) -> Kernel:
        """Give the kernel that computes the matrices of a fit where :meth:`_on_cluster` says."""
        return kernel if self._client is None else ClusterKernel(kernel, self._client)

    @contextmanager
    def _on_cluster(self, client: Any) -> Iterator[None]:
        """Compute the matrices of fits on a Dask cluster meanwhile; None changes nothing.

        The search for gains, on 256 points, and factorisations stay here. A connection is no part of a model, so it is no
        parameter, and neither clones nor files have it.
        """
        self._client = client
        try:
            yield
        finally:
            del self._client

    def _fit_kept(
        self,
        X: NDArray[Any],
        targets: NDArray[Any],
        kept: Any,
        weights: NDArray[Any] | None = None,
        noise: NDArray[Any] | None = None,
        left_out: bool = False,
    ) -> NDArray[Any] | None:
        """Fit the points of positive weight, with their targets, shape (n_kept,) or (n_kept, k)."""
        rows = X
        if not isinstance(kept, slice):
            rows = X[np.ix_(kept, kept)] if self._is_precomputed() else X[kept]
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        weighting = Weighting(
            None if weights is None else as_tensor(np.sqrt(weights[kept]), dtype, device),
            None if noise is None else as_tensor(noise[kept], dtype, device),
        )
        predictions = self._fit_targets(rows, targets, weighting, left_out)
        if self._is_precomputed() and len(rows) < len(X):
            dual = np.zeros((len(X), *targets.shape[1:]), self.dual_coef_.dtype)
            dual[kept] = self.dual_coef_
            self.dual_coef_ = dual
        return predictions

    def _has_gains(self) -> bool:
        if isinstance(self.kernel, str) and not self._is_precomputed():
            return True
        if self.tune == "auto":
            return False
        raise InputError(
            "tune='evidence' chooses the gains of a network, so kernel must be 'ntk' or 'nngp'. Got "
            f"{self.kernel!r}: write tune='loo', which chooses the ridge of any kernel."
        )

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self)
        except _SklearnNotFittedError as error:
            raise NotFittedError(str(error)) from None

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        """Return K(x, X) times the dual coefficients, shape (n,) or (n, k)."""
        self._check_fitted()
        with torch.no_grad():
            dual = as_tensor(self.dual_coef_, read_dtype(self.dtype), read_device(self.device))
            scores = torch.cat([gram @ dual for _, gram in self._blocks(X)])
        # scikit-learn expects float64, whatever dtype the estimator computes in.
        return scores.double().cpu().numpy()

    def _deviations(self, X: ArrayLike) -> NDArray[Any]:
        r"""Return the standard deviation of the Gaussian process with covariance K after training, shape (n,).

        The variance :math:`K(x, x) - K(x, X) A_{2t} K(X, x)`, with the dual coefficients at t being :math:`A_t Y`.
        """
        self._check_fitted()
        kernel, device = self.kernel_, read_device(self.device)
        if self._large_solver() is not None:
            raise InputError("return_std needs the factor of the whole Gram matrix. Leave solver and n_centres out.")
        if not isinstance(kernel, Kernel) or self.X_fit_ is None:
            raise InputError(
                "return_std needs K(x, x), which a precomputed kernel does not provide. Pass the kernel itself as kernel=..."
            )
        with torch.no_grad():
            gram = kernel(as_batch(self, self.X_fit_, device))
            unit = self._weighting.ridge_unit(gram.diagonal())
            system = self._weighting.apply_to_gram(gram, owned=isinstance(kernel, InfiniteWidthKernel))
            explained = _explained(system, unit * (self.ridge_ + self.jitter_), 2 * self.stopping_time_)
            parts = [
                kernel.diag(block) - explained(self._weighting.scale(cross.mT).mT) for block, cross in self._blocks(X)
            ]
        # At a training point without ridge the variance is zero, and rounding may make it negative.
        return torch.cat(parts).clamp_min(0).sqrt().double().cpu().numpy()

    def _blocks(self, X: ArrayLike) -> Iterator[tuple[Tensor, Tensor]]:
        """Check the rows, and yield them with K(x, X) one block at a time."""
        rows = read_features(self, X, fitting=False)
        device, kernel = read_device(self.device), self.kernel_
        points = None if self.X_fit_ is None else as_batch(self, self.X_fit_, device)
        for block in row_blocks(len(rows), block_rows(len(self.dual_coef_), read_dtype(self.dtype).itemsize)):
            batch = as_batch(self, rows[block], device)
            yield batch, kernel(batch, points) if isinstance(kernel, Kernel) else batch


def _explained(gram: Tensor, ridge: float, time: float) -> Callable[[Tensor], Tensor]:
    """Return the function from rows k = K(x, X), shape (m, n), to k A_t k^T, shape (m,)."""
    if math.isinf(time):
        lower = factorize(gram, ridge).lower
        return lambda cross: (torch.linalg.solve_triangular(lower, cross.T, upper=False) ** 2).sum(0)
    spectrum = decompose(gram)
    # K(x, X) has no component along directions whose eigenvalue is only rounding.
    weights = torch.where(spectrum.clean != 0, flow_filter(spectrum.shifted(ridge), time), 0)
    return lambda cross: ((cross @ spectrum.vectors) ** 2) @ weights
