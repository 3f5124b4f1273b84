"""The infinitely wide network as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import nn

from ntkit._src.common import DEPRECATED
from ntkit._src.kernels import Kernel
from ntkit._src.solvers import Method
from ntkit.errors import InputError

from ._base import KernelEstimator
from ._calibration import fit_temperature, logits, probabilities
from ._inputs import read_features, read_labels
from ._parameters import document
from ._tuning import Candidates
from ._weighting import kept_rows, read_weights

__all__ = ["NTKClassifier"]


@document
class NTKClassifier(ClassifierMixin, KernelEstimator):
    r"""Classification with the exact infinite-width kernel of a network.

    Regression on centred one-hot targets, :math:`Y_{ic} = 1\{y_i = c\} - 1/C`, and the class of the largest score:

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
        around T = 1. These scores come from the factorisation of the fit, which then takes less than twice as long. None:
        T = 1. Default ``"loo"``.
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
    >>> classifier = ntkit.NTKClassifier().fit(X[::4], y[::4])
    >>> bool(classifier.score(X[1::4], y[1::4]) > 0.9)
    True
    """

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
        ridge: Candidates = 0.0,
        stopping_time: Candidates = None,
        tune: str | None = None,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        solver: str | Method | None = None,
        n_centres: int | None = None,
        model: nn.Module | None = DEPRECATED,
    ) -> None:
        super().__init__(
            module,
            input_shape=input_shape,
            kernel=kernel,
            w_std=w_std,
            b_std=b_std,
            ridge=ridge,
            stopping_time=stopping_time,
            tune=tune,
            dtype=dtype,
            device=device,
            solver=solver,
            n_centres=n_centres,
            model=model,
        )
        self.encoding = encoding
        self.calibration = calibration
        self.class_weight = class_weight

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> NTKClassifier:
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
        # Copied, so that a later change of the caller's array does not affect the predictions.
        rows, labels = read_features(self, X, fitting=True, copy=self._keeps_rows(), y=read_labels(y))
        check_classification_targets(labels)
        labels = column_or_1d(labels, warn=True)
        weights = read_weights(sample_weight, rows)
        if self.class_weight is not None:
            by_class = compute_sample_weight(self.class_weight, labels)
            weights = by_class if weights is None else weights * by_class
        kept = kept_rows(weights)
        self.classes_, codes = np.unique(labels[kept], return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise InputError(f"y must hold at least two classes. Got one class, {self.classes_[0]!r}.")
        offset = self._offset(count)
        self._check_calibration()
        targets = 2.0 * codes - 1.0 if count == 2 else np.eye(count)[codes] - offset
        left_out = self._fit_kept(rows, targets, kept, weights, left_out=self.calibration is not None)
        self.temperature_ = 1.0
        if left_out is not None:
            known = np.isfinite(left_out).reshape(len(codes), -1).all(axis=1)
            counts = None if weights is None else weights[kept][known]
            self.temperature_ = fit_temperature(logits(left_out[known], count), codes[known], counts)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return the scores f(X), shape (n_test, C); for two classes (n_test,), positive for ``classes_[1]``."""
        return self._scores(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of the largest score, shape (n_test,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return class probabilities softmax(C f(X) / T), shape (n_test, C), columns in the order of ``classes_``.

        Least squares estimates the probabilities as 1/C + f, which may lie outside [0, 1]. softmax(C f) is the softmax that
        agrees with it to first order: always positive, in the order of the scores, largest for the class of :meth:`predict`.
        The temperature T, ``temperature_``, calibrates it.
        """
        return probabilities(logits(self.decision_function(X), len(self.classes_)), self.temperature_)

    def _check_calibration(self) -> None:
        if self.calibration not in ("loo", None):
            raise InputError(f"calibration must be 'loo' or None. Got {self.calibration!r}.")

    def _offset(self, classes: int) -> float:
        offsets = {"centered": 1 / classes, "arora": 0.1, "one-hot": 0.0}
        if not isinstance(self.encoding, str) or self.encoding not in offsets:
            raise InputError(f"encoding must be one of {', '.join(map(repr, offsets))}. Got {self.encoding!r}.")
        return offsets[self.encoding]
