"""What the estimators with a kernel of inputs share: reading a fit's parts, keeping its result, scores in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, is_classifier
from torch import Tensor, nn

from ntkit._src.common import block_rows, row_blocks
from ntkit._src.gram import GramOperator
from ntkit._src.kernels import InfiniteWidthKernel, Kernel
from ntkit._src.solvers import Method, inverse_diagonal
from ntkit.errors import InputError

from ._blend import BlendTuner, read_effort
from ._inputs import as_batch, as_tensor, check_fitted, read_device, read_dtype, read_features
from ._regression import DualFit, Factor, factor_of, fit_exactly, fit_large, read_method
from ._training_data import TrainingData, Weighting, read_source
from ._tuner import Candidates, Choice, Tuner, read_tuner

_Class = TypeVar("_Class", bound=type)

_PARAMETERS = """module : torch.nn.Module, optional
        The network. Default None: a ReLU network of three hidden layers.
    input_shape : tuple of int, optional
        The shape of one input of the module, such as ``(3, 32, 32)``, if X is flattened, one input per row. An X of shape
        (n, 3, 32, 32) needs none. Default None.
    kernel : {"ntk", "nngp", "precomputed"} or Kernel
        Which kernel of the module; or your own kernel, instead of a module; or ``"precomputed"``: X is then the Gram
        matrix K(X, X) at fit and K(x, X), shape (n_test, n_train), at predict. Default ``"ntk"``.
    w_std, b_std : float, optional
        The gains of every weight and bias of the module, as in :func:`ntkit.infinite_width`. Unused if ``kernel`` is
        a Kernel or precomputed. Default None: those of a module in the NTK parametrisation, otherwise sqrt(2) and 0.
    ridge : float, sequence of float, "auto" or None
        r, relative to ``trace(K)/n``, so that the scale of the kernel never changes an answer. Candidates (a sequence, or
        "auto" for half decades from 1e-8 to 10, from 1e-5 in float32) require ``tune="loo"`` or ``tune="auto"``. Default None:
        chosen by ``tune``, otherwise 0.
    stopping_time : float, sequence of float, "auto" or None
        t; None is infinity. Time is that of gradient flow of half the **summed** squared error: with learning rate
        :math:`\\eta`, t is :math:`\\eta` times the steps, so useful times are of the order of 1 / (eigenvalues of K).
        Candidates (a sequence, or "auto" for half decades from 1 to 1e10 over trace(K), and infinity) require
        ``tune="loo"``. Default None.
    tune : {"blend", "auto", "loo", "evidence"} or None
        ``"blend"``: the automatic model of tables, if no other parameter says what the kernel is or how it is solved (module,
        kernel, gains, ridge, stopping_time, solver, n_centres); otherwise everything as given. The kernel is a sum of tangent
        kernels of two depths and of Laplace kernels, in the plain metric of the standardised columns and in metrics learnt as
        by :class:`RFMRegressor`. The weights are those of the convex combination of their predictions with the smallest
        squared error on rows held out in turn; then the ridge is that with the smallest error of the sum there, of classes the
        smallest log loss of a logistic regression. ``tuning_`` says what was chosen. ``"auto"``: choose the gains by
        marginal likelihood on at most 256 points, each counted once, then the ridge by leave-one-out error on all. ``"loo"``:
        choose ridge and stopping time among their candidates, or just the ridge if neither has candidates, by the leave-one-out
        error, mean squared over points and columns, in closed form (:func:`ntkit.leave_one_out`). ``"evidence"``: choose ridge,
        w_std and b_std by the marginal likelihood of the targets under the Gaussian process with covariance K, starting from
        those given, or from ridge 1e-2 and b_std 0.1 instead of zeros (:func:`ntkit.evidence`); for ``kernel="ntk"`` or
        ``"nngp"``. Weights of points count there as copies; a noise level per target does not enter. The gains of a module in
        the NTK parametrisation are part of it and are not searched. None: everything as given. Default ``"blend"``.
    effort : {"fast", "default", "best"}
        How long ``tune="blend"`` may take: it chooses with at most 400, 1,500 or 3,000 rows, and fits exactly up to 3,000, 10,000
        or 20,000 rows, beyond that by Nystrom's method. Default ``"default"``.
    dtype : {"float64", "float32"}
        The dtype in which kernel and solution are computed. Default ``"float64"``.
    device : str or torch.device, optional
        The device of the computation. Results are always NumPy arrays. Default None: the CPU.
    solver : {"auto", "cholesky", "cg", "nystrom", "falkon", "eigenpro"} or Method, optional
        How a system of many rows is solved (:func:`ntkit.solve`); X may then be a ``numpy.memmap``, a Zarr or Dask array, or an
        iterator of blocks of rows, and only the centres are kept where the method has them. With ``tune="loo"`` or ``"auto"``
        the ridge is the best of its candidates on a tenth of the rows, held out, after a fit of at most 200,000 of the others;
        probabilities are calibrated on the held-out rows. With ``kernel="precomputed"`` X may be a stored Gram matrix
        (:func:`ntkit.open_gram`), of which only parts are read. Default None: exactly, with the whole Gram matrix in memory.
    n_centres : int, optional
        Centres of ``"nystrom"`` (which it implies) and ``"falkon"``. Default None: about 10 sqrt(n), at most 4000."""

_ATTRIBUTES = """kernel_ : Kernel
        The kernel in use, or the string ``"precomputed"``.
    X_fit_ : ndarray of shape (n_train, n_features)
        The training inputs; None when precomputed.
    input_shape_ : tuple of int or None
        The shape of one input, given or inferred from X.
    ridge_, stopping_time_ : float
        The values in use; infinity is training to the end.
    tuning_ : Blend, LeaveOneOut, Evidence, dict or None
        The result of tuning. Of the automatic model: the ``weights``, by name of the kernel; the ``errors`` of each kernel alone
        and the ``error`` of the sum, on rows held out; and its ``predictions`` of these ``rows``. For ``tune="auto"`` the
        leave-one-out errors of the ridges; with ``solver`` the mean squared error of each ridge on the held-out rows, a
        dictionary.
    jitter_ : float
        What was added to the ridge because the Gram matrix is singular.
    solution_status_ : str
        How the linear system was solved, and whether it needed jitter.
    n_features_in_ : int
        The number of columns of X at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, if X had string names for all."""


class KernelEstimator(BaseEstimator):
    """Kernel regression of targets that a subclass provides: a kernel source, a solver and what they found.

    A subclass lists its parameters in its constructor, which calls ``store(self, locals())``, and writes ``_solve``.
    """

    module: nn.Module | None
    input_shape: Sequence[int] | None
    kernel: str | Kernel
    dtype: str | torch.dtype
    device: str | torch.device | None
    solver: str | Method | None
    _keeps_factor: ClassVar[bool] = False
    _client: Any = None
    _many: bool = False
    effort: str = "default"
    _factor: Factor | None = None

    def _solve(self, data: TrainingData) -> tuple[Choice, DualFit]:
        """Choose what the parameters leave open, and solve."""
        raise NotImplementedError

    def _gains(self) -> dict[str, float | None]:
        """Return the gains of the network, if the estimator has such parameters."""
        return {}

    @property
    def _automatic(self) -> bool:
        """Whether the parameters leave everything to the automatic model."""
        return False

    @property
    def _factorises(self) -> bool:
        """Whether a fit holds the whole Gram matrix in memory and factorises it."""
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        tags.input_tags.sparse = not self._is_precomputed()
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the factor, of the size of the Gram matrix: the first standard deviation after loading computes it."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_factor"}

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Check X and y. Rows that the model keeps are copied: a later change of the caller's array changes no prediction."""
        rows, targets = read_features(self, X, y, fitting=True, copy=self._factorises and not self._is_precomputed())
        return rows, targets

    def _fit_kept(
        self,
        X: Any,
        targets: NDArray[Any],
        kept: Any,
        weights: NDArray[Any] | None = None,
        noise: NDArray[Any] | None = None,
        left_out: bool = False,
    ) -> NDArray[Any] | None:
        """Fit the points of positive weight, with their targets, shape (n_kept,) or (n_kept, k).

        With ``left_out``, return their predictions by models without them, shaped like the targets; NaN where there is none.
        """
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        rows = X
        if not isinstance(kept, slice):
            rows = X[np.ix_(kept, kept)] if self._is_precomputed() else X[kept]
        weighting = Weighting(
            None if weights is None else as_tensor(np.sqrt(weights[kept]), dtype, device),
            None if noise is None else as_tensor(noise[kept], dtype, device),
        )
        source = read_source(self.kernel, self.module, self.input_shape_, X.shape[1], **self._gains())
        if source.kernel is None and X.shape[0] != X.shape[1]:
            raise InputError(f"kernel='precomputed' needs the square Gram matrix K(X, X) at fit. Got shape {X.shape}.")
        self._many = self._automatic and weights is None and len(targets) > read_effort(self.effort).exact_rows
        x = rows if isinstance(rows, GramOperator) else as_batch(self, rows, device, shared=not self._factorises)
        y = as_tensor(targets, dtype, device)
        choice, fit = self._solve(TrainingData(source, x, y, weighting, left_out, self._client))
        self.kernel_: Kernel | str = "precomputed" if choice.kernel is None else choice.kernel
        centres = slice(None) if fit.centres is None else fit.centres.cpu().numpy()
        self.X_fit_: NDArray[Any] | None = None
        if choice.kernel is not None:
            self.X_fit_ = rows if fit.centres is None else np.array(rows[centres])
        self.dual_coef_: NDArray[Any] = fit.dual.cpu().numpy()
        if choice.kernel is None and (fit.centres is not None or len(self.dual_coef_) < len(X)):
            self.dual_coef_ = np.zeros((len(X), *targets.shape[1:]), self.dual_coef_.dtype)
            self.dual_coef_[np.arange(len(X))[kept][centres]] = fit.dual.cpu().numpy()
        self.ridge_, self.stopping_time_, self.tuning_ = choice.ridge, choice.time, choice.record
        self.jitter_, self.solution_status_ = fit.jitter, fit.status
        self._weighting = weighting
        self._factor = fit.factor if self._keeps_factor else None
        return None if fit.left_out is None else fit.left_out.double().cpu().numpy()

    @contextmanager
    def _on_cluster(self, client: Any) -> Iterator[None]:
        """Compute the matrices of fits on a Dask cluster meanwhile; None changes nothing. Neither clones nor files have it."""
        self._client = client
        try:
            yield
        finally:
            del self._client

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        """Return K(x, X) times the dual coefficients, shape (n,) or (n, k)."""
        check_fitted(self)
        with torch.no_grad():
            dual = as_tensor(self.dual_coef_, read_dtype(self.dtype), read_device(self.device))
            scores = torch.cat([gram @ dual for _, gram in self._blocks(X)])
        # scikit-learn expects float64, whatever dtype the estimator computes in.
        return scores.double().cpu().numpy()

    def _deviations(self, X: ArrayLike) -> NDArray[Any]:
        r"""Return the standard deviation of the Gaussian process with covariance K after training, shape (n,).

        The variance :math:`K(x, x) - K(x, X) A_{2t} K(X, x)`, with the dual coefficients at t being :math:`A_t Y`.
        """
        check_fitted(self)
        kernel = self.kernel_
        if not self._factorises:
            raise InputError("return_std needs the factor of the whole Gram matrix. Leave solver and n_centres out.")
        if not isinstance(kernel, Kernel):
            raise InputError(
                "return_std needs K(x, x), which a precomputed kernel does not provide. Pass the kernel itself as kernel=..."
            )
        with torch.no_grad():
            if self._factor is None:  # a model from a file or a pickle
                assert self.X_fit_ is not None
                gram = kernel(as_batch(self, self.X_fit_, read_device(self.device)))
                ridge = self._weighting.ridge_unit(gram.diagonal()) * (self.ridge_ + self.jitter_)
                system = self._weighting.apply_to_gram(gram, owned=isinstance(kernel, InfiniteWidthKernel))
                self._factor = factor_of(system, ridge, self.stopping_time_)
            parts = [
                kernel.diag(block) - self._factor.explained(self._weighting.scale(cross.mT).mT)
                for block, cross in self._blocks(X)
            ]
        # At a training point without ridge the variance is zero, and rounding may make it negative.
        return torch.cat(parts).clamp_min(0).sqrt().double().cpu().numpy()

    def _noise(self) -> float:
        """Return the variance that the ridge stands for, in units of the kernel."""
        assert isinstance(self.kernel_, Kernel)
        assert self.X_fit_ is not None
        with torch.no_grad():
            diagonal = self.kernel_.diag(as_batch(self, self.X_fit_, read_device(self.device)))
        weights = self._weighting.weights
        mean = diagonal.mean() if weights is None else (weights * diagonal).sum() / weights.sum()
        return float(mean) * (self.ridge_ + self.jitter_)

    def _left_out(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return errors of leaving one out, shaped like the coefficients, and deviations, shape (n,), in closed form."""
        if not (self._factorises and self._weighting.plain and math.isinf(self.stopping_time_)):
            raise InputError(
                "interval needs the errors of leaving one out in closed form: of a fit without solver, stopping time, weights "
                "and noise, or of the automatic model. Leave these out."
            )
        self._deviations(self.X_fit_[:1])  # type: ignore[index]  # computes the factor of a model from a file
        assert self._factor is not None
        inverse = inverse_diagonal(self._factor.matrix.tril()).double().cpu().numpy()
        dual = self.dual_coef_.astype(np.float64)
        return dual / (inverse if dual.ndim == 1 else inverse[:, None]), inverse**-0.5

    def _blocks(self, X: ArrayLike) -> Iterator[tuple[Tensor, Tensor]]:
        """Check the rows, and yield them with K(x, X) one block at a time."""
        rows = read_features(self, X, fitting=False)
        device, kernel = read_device(self.device), self.kernel_
        points = None if self.X_fit_ is None else as_batch(self, self.X_fit_, device)
        for block in row_blocks(len(rows), block_rows(len(self.dual_coef_), read_dtype(self.dtype).itemsize)):
            batch = as_batch(self, rows[block], device)
            yield batch, kernel(batch, points) if isinstance(kernel, Kernel) else batch


class TunedEstimator(KernelEstimator):
    """An estimator whose ridge, stopping time and gains a tuner may choose, solved exactly or by a solver for many rows."""

    w_std: float | None
    b_std: float | None
    ridge: Candidates
    stopping_time: Candidates
    tune: str | None
    n_centres: int | None

    @property
    def _factorises(self) -> bool:
        return self.solver is None and self.n_centres is None and not self._many

    @property
    def _automatic(self) -> bool:
        given = self.module, self.w_std, self.b_std, self.ridge, self.stopping_time, self.solver, self.n_centres
        plain = isinstance(self.kernel, str) and self.kernel == "ntk"
        return self.tune == "blend" and plain and all(one is None for one in given)

    def _gains(self) -> dict[str, float | None]:
        return {"w_std": self.w_std, "b_std": self.b_std}

    def _solve(self, data: TrainingData) -> tuple[Choice, DualFit]:
        read_effort(self.effort)
        tuner: Tuner = read_tuner(self.tune, self.ridge, self.stopping_time, self.w_std, self.b_std)
        if self._automatic:
            classes = is_classifier(self)
            tuner = BlendTuner(effort=read_effort(self.effort), classes=classes, logistic=classes and not self._many)
        if self._factorises:
            return fit_exactly(data, tuner)
        return fit_large(data, tuner, read_method("nystrom" if self.solver is None else self.solver, self.n_centres))


def document(cls: _Class) -> _Class:
    """Insert the shared parts into the docstring of an estimator, in place of ``{parameters}`` and ``{attributes}``."""
    if cls.__doc__ is not None:  # removed by python -OO
        cls.__doc__ = cls.__doc__.replace("{parameters}", _PARAMETERS).replace("{attributes}", _ATTRIBUTES)
    return cls
