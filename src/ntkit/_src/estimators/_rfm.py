"""Recursive feature machines as scikit-learn estimators."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from ntkit._src.common import block_rows, check_choice, check_input_shape, check_number, data_splits, shown
from ntkit._src.features.rfm import DifferentiableKernel, DistanceKernel, MetricKernel, RFMSettings, RFMState, Scale
from ntkit._src.kernels import Kernel, infinite_width
from ntkit.errors import InputError, InputTypeError, JitterWarning

from ._inputs import as_tensor, check_fitted, listed_numbers, numpy_dtype, read_device, read_dtype, read_labels, store
from ._labels import LabelEncoderMixin, check_classes
from ._rfm_choice import Candidate, Error, choose, quiet_recursion

_ITERATIONS = (0, 1, 2, 3, 4, 5)
_RIDGES = (1e-3, 1e-1)
_POWERS = (0.5, 1.0)
_BANDWIDTHS = ("median", ("median", 4.0))
_DIAGONAL = (False, True)
_FEWEST_ROWS = 10  # with fewer rows no part is held out
_MANY_ROWS = 1000  # from this many rows on a single part is held out
_PARTS = 3


@dataclass(frozen=True)
class RFMIteration:
    """One update of the metric: how many there were, and the mean squared error on the training targets.

    ``bandwidth`` is that of the kernel, nan for one without; ``jitter`` was added to the ridge of a singular Gram matrix.
    """

    iteration: int
    bandwidth: float
    train_error: float
    jitter: float


class RFMBase(BaseEstimator):
    """Kernel regression in a learnt metric, for targets that a subclass provides."""

    def __init__(
        self,
        kernel: str | Kernel | nn.Module = "laplace",
        iterations: int | str | Sequence[int] = "auto",
        ridge: float | str | Sequence[float] = "auto",
        bandwidth: float | str | Sequence[float] = "auto",
        power: float | str | Sequence[float] = "auto",
        diagonal: bool | str = "auto",
        center_gradients: bool = False,
        scale: str | None = "max",
        held_out: float = 0.2,
        w_std: float | None = None,
        b_std: float | None = None,
        input_shape: Sequence[int] | None = None,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        store(self, locals())

    def _fit_targets(self, X: NDArray[Any], targets: NDArray[Any], error: Error, codes: NDArray[Any] | None) -> None:
        """Choose the settings and fit; X has been validated, targets have shape (n,) or (n, c)."""
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        x, y = as_tensor(X, dtype, device), as_tensor(targets.reshape(len(X), -1), dtype, device)
        own, grid = self._own_kernel(), self._grid()
        parts = self._parts(len(X), codes) if any(len(values) > 1 for values in grid.values()) else []
        choice = choose(x, y, grid, lambda candidate: self._settings(candidate, own), parts, error)
        best, history = choice.best, []
        for number, state in enumerate(quiet_recursion(x, y, self._settings(best, own))):
            width = state.kernel.bandwidth if isinstance(state.kernel, DistanceKernel) else None
            jitter = state.solution.stats["jitter"]
            history.append(RFMIteration(number, float("nan") if width is None else width, state.residual, jitter))
        self._state: RFMState = state
        self.choice_, self.history_, self.n_iter_ = choice, tuple(history), len(history) - 1
        self.metric_, self.dual_coef_ = state.metric.matrix.cpu().numpy(), state.solution.value.cpu().numpy()
        self.ridge_, self.power_, self.diagonal_ = best.ridge, best.power, best.diagonal
        self.bandwidth_, self.jitter_ = history[-1].bandwidth, history[-1].jitter
        self.solution_status_ = state.solution.status
        if self.jitter_ > 0:
            warnings.warn(
                f"the Gram matrix is singular: {self.jitter_:.1e} was added to the ridge. Pass a larger ridge, or remove "
                "repeated rows.",
                JitterWarning,
                stacklevel=3,
            )

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        """Return f(X) of the centred targets, shape (n, c)."""
        check_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=numpy_dtype(self.dtype))
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        blocks = as_tensor(rows, dtype, device).split(block_rows(len(self._state.points), dtype.itemsize))
        with torch.no_grad():
            scores = torch.cat([self._state.predict(block) for block in blocks])
        return scores.double().cpu().numpy()

    def _grid(self) -> dict[str, list[Any]]:
        """Return the candidates of every setting, in the order of the fields of a candidate."""
        if not isinstance(self.diagonal, (bool, np.bool_)) and self.diagonal != "auto":
            raise InputError(f'diagonal must be True, False or "auto". Got {self.diagonal!r}.')
        return {
            "bandwidth": self._bandwidths(),
            "ridge": listed_numbers("ridge", self.ridge, _RIDGES),
            "power": listed_numbers("power", self.power, _POWERS, positive=True),
            "diagonal": list(_DIAGONAL) if self.diagonal == "auto" else [bool(self.diagonal)],
            "iterations": sorted(set(listed_numbers("iterations", self.iterations, _ITERATIONS, whole=True))),
        }

    def _bandwidths(self) -> list[Any]:
        if not isinstance(self.kernel, str):
            if isinstance(self.bandwidth, str) and self.bandwidth in ("auto", "median"):
                return [None]
            raise InputError(
                f'bandwidth is that of kernel="laplace" or "gaussian". Got {shown(self.bandwidth)} with a kernel of its own: '
                "leave it out."
            )
        if self.bandwidth == "median":
            return ["median"]
        return listed_numbers("bandwidth", self.bandwidth, _BANDWIDTHS, positive=True)

    def _own_kernel(self) -> DifferentiableKernel | None:
        """Return the kernel of a module or the user's own kernel; None for a named one."""
        kernel = self.kernel
        if isinstance(kernel, (nn.Module, Kernel)):
            own = kernel if isinstance(kernel, Kernel) else infinite_width(kernel, self.w_std, self.b_std).ntk
            return DifferentiableKernel(own, check_input_shape(self.input_shape))
        if kernel not in ("laplace", "gaussian"):
            raise (InputError if isinstance(kernel, str) else InputTypeError)(
                f'kernel must be "laplace", "gaussian", an ntkit Kernel or a torch.nn.Module. Got {shown(kernel)} of type '
                f"{type(kernel).__name__}."
            )
        if self.input_shape is not None:
            raise InputError("input_shape is only for the kernel of a module. Leave it out.")
        return None

    def _settings(self, candidate: Candidate, own: DifferentiableKernel | None) -> RFMSettings:
        if self.scale is not None:
            check_choice("scale", self.scale, ("max", "trace"), " or None")
        kernel: MetricKernel | None = own
        if kernel is None:
            width: Any = candidate.bandwidth
            factor = width[1] if isinstance(width, tuple) else 1.0
            kernel = DistanceKernel(cast(Any, self.kernel), width if isinstance(width, float) else None, factor)
        number, scale = candidate.iterations, cast(Scale, self.scale)
        ridge, power, diagonal = candidate.ridge, candidate.power, candidate.diagonal
        return RFMSettings(kernel, number, ridge, power, diagonal, bool(self.center_gradients), scale)

    def _parts(self, n: int, codes: NDArray[Any] | None) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Hold out random parts, stratified by class: one of many rows, three in turn of few, none of very few."""
        share = check_number("held_out", self.held_out)
        if not 0 < share < 1:
            raise InputError(f"held_out must lie between 0 and 1. Got {share}.")
        if n < _FEWEST_ROWS:
            return []
        seed = check_random_state(self.random_state)
        return data_splits(n, share, seed, codes, repeats=1 if n >= _MANY_ROWS else _PARTS)


class RFMRegressor(MultiOutputMixin, RegressorMixin, RFMBase):
    r"""Kernel regression in a learnt metric: the recursive feature machine.

    Regression with the kernel :math:`k(M^{1/2} x, M^{1/2} z)`, starting from M = I, alternates with

    .. math:: M = \operatorname{AGOP}^p, \qquad \operatorname{AGOP} = \frac1n \sum_i \nabla f(x_i) \nabla f(x_i)^T

    over the training points, where each point's own term is left out of its gradient (the Laplace kernel has a cusp there).
    Directions on which the predictor does not depend vanish, as they do in the first layer of a trained network
    (Radhakrishnan et al. 2022). Targets are centred first.

    Settings left at "auto", or given as a sequence of candidates, are chosen by the mean squared error on a random fifth of the
    training data; below 1,000 rows on three such parts in turn, where the worse half of the settings is dropped after each.
    Then everything is refitted on all rows.
    (Closed-form leave-one-out errors would be optimistic: the metric has seen the labels.) Below 10 rows the first candidate
    is used.

    Parameters
    ----------
    kernel : {"laplace", "gaussian"}, Kernel or torch.nn.Module
        :math:`e^{-r/L}`, :math:`e^{-r^2/2L^2}` with the distance r in the metric; your own kernel that torch can
        differentiate; or a module, whose infinite-width NTK is used.
    iterations : int, sequence of int or "auto"
        Number of updates of M. "auto" tries 0 to 5.
    ridge : float, sequence of float or "auto"
        Relative to ``trace(K)/n``. "auto" tries 1e-3 and 1e-1.
    bandwidth : float, sequence of float, "median" or "auto"
        L; "median" is the median distance of the training points in the current metric. "auto" tries the median and four
        times it. For the Laplace and Gaussian kernels.
    power : float, sequence of float or "auto"
        p. "auto" tries 0.5 and 1.
    diagonal : bool or "auto"
        Whether M is diagonal.
    center_gradients : bool
        Whether to subtract the mean gradient first.
    scale : {"max", "trace"} or None
        Whether to divide M by its largest entry, or by the mean of its diagonal.
    held_out : float
        The fraction of rows held out.
    w_std, b_std : float, optional
        Gains of a module's weights and biases, as in :func:`ntkit.infinite_width`. Default None: the module's own, or else
        sqrt(2) and 0.
    input_shape : tuple of int, optional
        The shape of one input of the module, such as ``(3, 32, 32)``: images are flattened, one per row of X.
    dtype : {"float64", "float32"}
        The dtype of all computations.
    device : str or torch.device, optional
        The device of the computation. None is the CPU.
    random_state : int, RandomState or None
        Seed of the choice of held-out rows.

    Attributes
    ----------
    metric_ : ndarray of shape (n_features, n_features), or (n_features,) if diagonal
        M.
    history_ : tuple of RFMIteration
        Bandwidth, training error and jitter after every update.
    choice_ : RFMChoice
        The settings in use, all candidates, and their errors.
    ridge_, power_, bandwidth_, diagonal_, n_iter_
        The settings in use.
    dual_coef_ : ndarray of shape (n_train, n_outputs)
        The coefficients a in f(x) = k(x, X) a + mean.
    jitter_ : float
        What was added to the ridge because the Gram matrix is singular.
    solution_status_ : str
        How the last linear system was solved.
    n_features_in_ : int
        The number of columns of X at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, if X had string names for all.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism of feature learning in deep fully connected networks and
       kernel machines that recursively learn features", 2022.

    See Also
    --------
    ntkit.features.agop : the same matrix of a network.

    Examples
    --------
    >>> import ntkit, numpy as np
    >>> X = np.random.default_rng(0).normal(size=(400, 10))
    >>> y = X[:, 0] * X[:, 1]
    >>> model = ntkit.RFMRegressor(iterations=4, ridge=1e-3, bandwidth="median", power=0.5, diagonal=False).fit(X[:300], y[:300])
    >>> bool(model.score(X[300:], y[300:]) > 0.9)
    True
    >>> np.argsort(np.diag(model.metric_))[-2:].tolist() in ([0, 1], [1, 0])
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> RFMRegressor:
        """Choose the settings, and learn the metric.

        Parameters
        ----------
        X : array of shape (n_train, n_features)
        y : array of shape (n_train,) or (n_train, n_outputs)
        """
        dtype = numpy_dtype(self.dtype)
        rows, given = validate_data(self, X, y, dtype=dtype, multi_output=True, y_numeric=True, copy=True)
        targets = np.asarray(given, dtype=dtype)
        self._single = targets.ndim == 1
        targets = targets.reshape(len(rows), -1)
        constant = targets.max(axis=0) == targets.min(axis=0)
        # A constant target must be centred to exactly zero.
        self.offset_ = np.where(constant, targets[0], targets.mean(axis=0))
        self._fit_targets(rows, targets - self.offset_, lambda f, y: float(mse_loss(f, y)), None)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return f(X), shape (n_test,) or (n_test, n_outputs) like y at fit."""
        values = self._scores(X) + np.asarray(self.offset_, dtype=np.float64)
        return values[:, 0] if self._single else values


class RFMClassifier(LabelEncoderMixin, RFMBase):
    """Classification by a recursive feature machine: regression on centred one-hot targets in a learnt metric.

    The targets of a point of class c are :math:`e_c - 1/C`, and the class of the largest score is predicted; two classes use
    one column of targets -1 and 1, which yields the same classifier. All else is as for :class:`RFMRegressor`; the settings
    are chosen by the error rate on held-out rows, with ties broken by the squared error of the scores.

    Parameters
    ----------
    kernel, iterations, ridge, bandwidth, power, diagonal, center_gradients, scale, held_out, w_std, b_std, input_shape, dtype, \
    device, random_state
        As for :class:`RFMRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    metric_, history_, choice_, ridge_, power_, bandwidth_, diagonal_, n_iter_, dual_coef_, jitter_, solution_status_, \
    n_features_in_, feature_names_in_
        As for :class:`RFMRegressor`.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ntkit.RFMClassifier(iterations=2, ridge=1e-2, bandwidth="median", power=1.0, diagonal=True).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> RFMClassifier:
        """Choose the settings, and learn the metric.

        Parameters
        ----------
        X : array of shape (n_train, n_features)
        y : array of shape (n_train,)
            Labels of one type: integers, strings, booleans.
        """
        rows, given = validate_data(self, X, read_labels(y), dtype=numpy_dtype(self.dtype), copy=True)
        codes, targets = self._encode(check_classes(given))
        self._fit_targets(rows, targets, _mistakes, codes)
        return self


def _mistakes(predicted: Tensor, targets: Tensor) -> float:
    """Return the error rate plus, to break ties, a thousandth of the squared error."""
    two = targets.shape[1] == 1
    wrong = (predicted > 0) != (targets > 0) if two else predicted.argmax(1) != targets.argmax(1)
    return float(wrong.double().mean()) + 1e-3 * float(mse_loss(predicted, targets))
