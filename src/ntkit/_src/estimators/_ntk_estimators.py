"""The infinitely wide network as a scikit-learn classifier and as a regressor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from torch import nn

from ntkit._src.common import check_choice
from ntkit._src.kernels import Kernel
from ntkit._src.solvers import Method
from ntkit.errors import InputError

from ._base import KernelEstimator, TunedEstimator, document
from ._blend import Blend
from ._inputs import numpy_dtype, read_features, read_labels, store
from ._labels import LabelEncoderMixin, check_classes, fit_temperature, logits
from ._training_data import kept_rows, read_noise, read_weights
from ._tuner import Candidates
from ._uncertainty import Calibration

# What is subtracted from one-hot targets; None centres them.
_OFFSETS = {"centered": None, "arora": 0.1, "one-hot": 0.0}


class KernelClassifier(LabelEncoderMixin, KernelEstimator):
    """Classification by kernel regression on encoded labels, with calibrated probabilities."""

    class_weight: Mapping[Any, float] | str | None
    calibration: str | None
    encoding: str = "centered"
    _calibrations: ClassVar[tuple[str, ...]]

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Compute the Gram matrix and solve for the dual coefficients.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_train, n_features), or array of shape (n_train, channels, ...)
            The inputs; the Gram matrix (n_train, n_train) when precomputed.
        y : array of shape (n_train,)
            Labels of one type: integers, strings, booleans.
        sample_weight : array of shape (n_train,), optional
            Non-negative weights of the points in the squared error; zero leaves a point out. Default None: all one.
        """
        rows, given = self._read(X, read_labels(y))
        labels, weights = check_classes(given), read_weights(sample_weight, rows)
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, labels)
            weights = by_class if weights is None else weights * by_class
        if self.calibration is not None:
            check_choice("calibration", self.calibration, self._calibrations, " or None")
        check_choice("encoding", self.encoding, _OFFSETS)
        kept = kept_rows(weights)
        codes, targets = self._encode(labels[kept], None if self._automatic else _OFFSETS[self.encoding])
        left_out = self._fit_kept(rows, targets, kept, weights, left_out=self.calibration is not None)
        self.temperature_ = 1.0
        if left_out is not None:
            known = np.isfinite(left_out).reshape(len(codes), -1).all(axis=1)
            counts = None if weights is None else weights[kept][known]
            self.temperature_ = fit_temperature(logits(left_out[known], len(self.classes_)), codes[known], counts)
        return self


@document
class NTKClassifier(KernelClassifier, TunedEstimator):
    r"""Classification with the exact infinite-width kernel of a network.

    By default the automatic model of tables (``tune``): kernel logistic regression. With anything given, as below:
    regression on centred one-hot targets, :math:`Y_{ic} = 1\{y_i = c\} - 1/C`, and the class of the largest score:

    .. math:: f(x) = K(x, X)\, A^{-1} \bigl(I - e^{-A t}\bigr)\, Y, \qquad
              A = K(X, X) + r\,\tfrac{\operatorname{tr} K}{n} I

    With the NTK and r = 0 this is the infinitely wide network trained on the squared loss from zero output by gradient flow
    for the time t, and kernel regression for infinite t [1]_ [2]_. Two classes use one column of targets -1 and 1, which
    yields the same classifier.

    Parameters
    ----------
    {parameters}
    encoding : {"centered", "arora", "one-hot"}
        The targets of a point of class c: ``"centered"`` :math:`e_c - 1/C`, ``"arora"`` :math:`e_c - 0.1` (Arora et al. [2]_;
        the same for ten classes), ``"one-hot"`` :math:`e_c`. They differ by the same number in all columns, so the scores differ
        by the same function of x in all columns: without tuning, classes and probabilities are the same. Default ``"centered"``.
    calibration : {"loo"}, optional
        ``"loo"``: the probabilities are softmax(C f / T), with the most probable temperature T given the leave-one-out
        scores, from models that have not seen the point (:func:`ntkit.leave_one_out`), under a weak prior
        around T = 1. These scores come from the factorisation of the fit, which then takes less than twice as long; those of
        the automatic model are of rows held out. None: T = 1. Default ``"loo"``.
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied with ``sample_weight``; ``"balanced"`` is inversely proportional to their frequency.
        Weights act through the ridge: with r = 0 the training labels are fitted exactly, whatever their weights. Default
        None.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    temperature_ : float
        T.
    dual_coef_ : ndarray of shape (n_train,) for two classes, (n_train, C) for more
        The coefficients a in f(x) = K(x, X) a.
    {attributes}

    See Also
    --------
    NTKRegressor : the same for numerical targets.
    LabelAwareClassifier : with a kernel that has seen the labels.
    ntkit.tabular_pipeline : with preprocessing of a data frame.

    References
    ----------
    .. [1] Jacot, Gabriel, Hongler, "Neural Tangent Kernel: Convergence and Generalization in Neural Networks", 2018.
    .. [2] Arora, Du, Hu, Li, Salakhutdinov, Wang, "On Exact Computation with an Infinitely Wide Neural Net", 2019.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = ntkit.NTKClassifier(effort="fast").fit(X[::4], y[::4])
    >>> bool(classifier.score(X[1::4], y[1::4]) > 0.9)
    True
    """

    _calibrations = ("loo",)

    def __init__(
        self,
        module: nn.Module | None = None,
        *,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        w_std: float | None = None,
        b_std: float | None = None,
        encoding: str = "centered",
        calibration: str | None = "loo",
        class_weight: Mapping[Any, float] | str | None = None,
        ridge: Candidates = None,
        stopping_time: Candidates = None,
        tune: str | None = "blend",
        effort: str = "default",
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        solver: str | Method | None = None,
        n_centres: int | None = None,
    ) -> None:
        store(self, locals())


@document
class NTKRegressor(MultiOutputMixin, RegressorMixin, TunedEstimator):
    r"""Regression with the exact infinite-width kernel of a network; by default with the automatic model of tables (``tune``).

    .. math:: f(x) = K(x, X)\, A^{-1} \bigl(I - e^{-A t}\bigr)\, Y, \qquad
              A = K(X, X) + r\,\tfrac{\operatorname{tr} K}{n} I

    With the NTK and r = 0 this is the infinitely wide network trained on the squared loss from zero output by gradient flow
    for the time t, and kernel regression for infinite t [1]_ [2]_. With the NNGP kernel only the last layer is trained.

    Parameters
    ----------
    {parameters}
    normalize_y : bool
        Whether to normalise targets to mean 0 and variance 1 per output; predictions and standard deviations are still in the
        units of the targets. The automatic model always does. Recommended with ``tune="auto"``, and if the targets are far from
        zero. Default False: the targets are used unchanged.

    Attributes
    ----------
    dual_coef_ : ndarray of shape (n_train,) or (n_train, n_outputs)
        The coefficients a in f(x) = K(x, X) a, for the normalised targets if they are normalised.
    y_mean_, y_scale_ : ndarray of shape () or (n_outputs,)
        Shift and scale of the targets; 0 and 1 without ``normalize_y``.
    {attributes}

    See Also
    --------
    NTKClassifier : the same for classes.
    ntkit.posterior : mean and covariance of trained networks at any time.
    ntkit.tabular_pipeline : with preprocessing of a data frame.

    References
    ----------
    .. [1] Jacot, Gabriel, Hongler, "Neural Tangent Kernel: Convergence and Generalization in Neural Networks", 2018.
    .. [2] Arora, Du, Hu, Li, Salakhutdinov, Wang, "On Exact Computation with an Infinitely Wide Neural Net", 2019.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(300, random_state=0)
    >>> regressor = ntkit.NTKRegressor(b_std=0.1, ridge=1e-3).fit(X[:200], y[:200])
    >>> bool(regressor.score(X[200:], y[200:]) > 0.8)
    True

    Nothing to choose by hand:

    >>> automatic = ntkit.NTKRegressor(effort="fast").fit(X[:200], y[:200])
    >>> bool(automatic.score(X[200:], y[200:]) > 0.9)
    True
    >>> mean, bounds = automatic.predict(X[200:], interval=0.9)
    >>> mean.shape, bounds.shape
    ((100,), (100, 2))
    """

    _keeps_factor = True
    normalize_y: bool

    def __init__(
        self,
        module: nn.Module | None = None,
        *,
        normalize_y: bool = False,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        w_std: float | None = None,
        b_std: float | None = None,
        tune: str | None = "blend",
        effort: str = "default",
        ridge: Candidates = None,
        stopping_time: Candidates = None,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        solver: str | Method | None = None,
        n_centres: int | None = None,
    ) -> None:
        store(self, locals())

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, noise: ArrayLike | None = None
    ) -> NTKRegressor:
        """Compute the Gram matrix and solve for the dual coefficients.

        Parameters
        ----------
        X : array or sparse matrix of shape (n_train, n_features), or array of shape (n_train, channels, ...)
            The inputs; the Gram matrix (n_train, n_train) when precomputed.
        y : array of shape (n_train,) or (n_train, n_outputs)
            The targets.
        sample_weight : array of shape (n_train,), optional
            Non-negative weights of the points in the squared error. They act through the ridge: with ``ridge=0`` the
            targets are fitted exactly, whatever their weights. Zero leaves a point out. Default None: all one.
        noise : float or array of shape (n_train,), optional
            The variance of the noise of each target, in the squared units of the targets; added to the diagonal of K, in
            addition to the ridge. Default None: no noise.
        """
        dtype = numpy_dtype(self.dtype)
        rows, given = self._read(X, y)
        weights, variances = read_weights(sample_weight, rows), read_noise(noise, len(rows))
        if variances is not None and self._automatic:
            raise InputError(
                "noise is a variance in units of a kernel that the parameters describe, and the automatic model chooses its own. "
                "Write ridge=0.0 or tune='evidence' with it."
            )
        kept = kept_rows(weights)
        targets = np.asarray(given, dtype=dtype)[kept]
        self.y_mean_, self.y_scale_ = np.zeros(targets.shape[1:]), np.ones(targets.shape[1:])
        if self.normalize_y or self._automatic:
            counted = None if weights is None else weights[kept]
            self.y_mean_ = np.average(targets, axis=0, weights=counted)
            spread = np.sqrt(np.average((targets - self.y_mean_) ** 2, axis=0, weights=counted))
            self.y_scale_ = np.where(spread > 0, spread, 1.0)
            targets = ((targets - self.y_mean_) / self.y_scale_).astype(dtype)
        if variances is not None:
            # Outputs share one kernel matrix and hence the noise: for several outputs the mean scale is used.
            variances = variances / np.mean(self.y_scale_**2)
        left_out = self._fit_kept(rows, targets, kept, weights, variances)
        self._calibration: Calibration | None = None
        if isinstance(self.tuning_, Blend) and left_out is not None:
            known = np.isfinite(left_out).reshape(len(left_out), -1).all(axis=1)
            deviations = np.ones(int(known.sum()))
            if not self._many:
                deviations = (
                    self.tuning_.variances.double().cpu().numpy()[known[self.tuning_.rows.cpu().numpy()]] ** 0.5
                )
            self._calibration = Calibration.of((targets - left_out)[known].astype(np.float64), deviations)
        return self

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False, interval: None = None) -> NDArray[Any]: ...

    @overload
    def predict(
        self, X: ArrayLike, return_std: bool = False, interval: float | None = None
    ) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]: ...

    def predict(
        self, X: ArrayLike, return_std: bool = False, interval: float | None = None
    ) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
        r"""Return f(X), shape (n_test,) or (n_test, n_outputs) like y at fit.

        Parameters
        ----------
        X : array as at fit, of n_test inputs, or K(X_test, X_train) when precomputed
        return_std : bool
            Whether to return the standard deviation too. Of the automatic model it is that of a target, noise included, in
            the units of the targets: the deviation below with the ridge added to the variance, scaled so that errors on
            rows held out have variance one in its units; beyond the rows of an exact fit, the same for all points.
            With any other ``tune``: that of the Gaussian process with covariance K, conditioned on the
            targets with the ridge as the variance of their noise,

            .. math:: \sigma^2(x) = K(x, x) - K(x, X)\, A^{-1} \bigl(I - e^{-2 A t}\bigr)\, K(X, x),

            which at finite t is the spread of gradient flows that start at draws of that process and fit targets with
            fresh noise. For ``kernel="nngp"`` and infinite t this is the exact Bayesian posterior of the infinitely wide
            network. For ``kernel="ntk"`` the prior covariance is the NTK, not the network's own; the spread of trained
            networks is ``ntkit.posterior``. It is in the units of K, whatever the scale of the targets: with ``normalize_y``
            times their standard deviation, so in their units; ``tune="evidence"`` fits that scale. It uses the
            factorisation of the fit, which a model read from a file or a pickle does again, once. Default False.
        interval : float, optional
            The share q of new targets that the interval is to cover, such as 0.9: f(x) plus and minus a multiple of the standard
            deviation with noise, the multiple being the quantile of what errors of points left out are of theirs. Whatever the
            distribution of the noise, intervals cover the share q of points drawn like the training points, on average. The
            points are left out in folds by the automatic model, one at a time in closed form by others. Default None.

        Returns
        -------
        mean : ndarray
            f(X).
        std : ndarray of the same shape
            Only with ``return_std``.
        bounds : ndarray of shape (n_test, 2) or (n_test, n_outputs, 2)
            Lower and upper ends, only with ``interval``.
        """
        if return_std and interval is not None:
            raise InputError("return_std and interval are two answers. Got both: call predict twice.")
        mean = self._scores(X) * self.y_scale_ + self.y_mean_
        if interval is not None:
            calibration = self._calibration if self._automatic else Calibration.of(*self._left_out())
            if calibration is None:
                raise InputError(
                    "interval needs errors on rows held out, of which there are none: fit ten rows or more."
                )
            half = self._spread(X, mean.ndim) * (calibration.quantile(interval) * self.y_scale_)
            return mean, np.stack([mean - half, mean + half], axis=-1)
        if not return_std:
            return mean
        if self._automatic and self._calibration is not None:
            return mean, self._spread(X, mean.ndim) * (self._calibration.scale * self.y_scale_)
        std = self._deviations(X)
        return mean, (std if mean.ndim == 1 else std[:, None]) * self.y_scale_

    def _spread(self, X: ArrayLike, dimensions: int) -> NDArray[Any]:
        """Return the deviation of targets up to a scale, shape (n_test,) or (n_test, 1)."""
        if self._many:
            std = np.ones(len(read_features(self, X, fitting=False)))
        else:
            std = np.sqrt(self._deviations(X) ** 2 + self._noise())
        return std if dimensions == 1 else std[:, None]
