"""The recursive feature machine as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data
from torch import Tensor

from ._inputs import numpy_dtype
from ._rfm_base import RFMBase

__all__ = ["RFMRegressor"]


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
        self._fit_targets(rows, targets - self.offset_, _squared_error, None)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return f(X), shape (n_test,) or (n_test, n_outputs) like y at fit."""
        values = self._scores(X) + np.asarray(self.offset_, dtype=np.float64)
        return values[:, 0] if self._single else values


def _squared_error(predicted: Tensor, targets: Tensor) -> float:
    return float((predicted - targets).square().mean())
