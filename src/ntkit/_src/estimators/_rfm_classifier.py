"""The recursive feature machine as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import Tensor

from ntkit.errors import InputError

from ._calibration import logits, probabilities
from ._rfm_base import RFMBase
from ._settings import numpy_dtype

__all__ = ["RFMClassifier"]


class RFMClassifier(ClassifierMixin, RFMBase):
    r"""Classification by a recursive feature machine: regression on centred one-hot targets in a learnt metric.

    The targets of a point of class c are :math:`e_c - 1/C`, and the class of the largest score is predicted; two classes use
    one column of targets -1 and 1, which yields the same classifier. All else is as for :class:`RFMRegressor`; the settings
    are chosen by the error rate on held-out rows, with ties broken by the squared error of the scores.

    Parameters
    ----------
    kernel, iterations, ridge, bandwidth, power, diagonal, center_gradients, scale, held_out
        As for :class:`RFMRegressor`.
    w_std, b_std, input_shape, dtype, device, random_state
        As for :class:`RFMRegressor`.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    metric_, history_, choice_, dual_coef_, jitter_, n_iter_, solution_status_, n_features_in_, feature_names_in_
        As for :class:`RFMRegressor`.
    ridge_, power_, bandwidth_, diagonal_
        As for :class:`RFMRegressor`.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism of feature learning in deep fully connected networks and
       kernel machines that recursively learn features", 2022.

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
            Labels of any type: integers, strings, booleans.
        """
        rows, labels = validate_data(self, X, y, dtype=numpy_dtype(self.dtype), copy=True)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(column_or_1d(labels, warn=True), return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise InputError(f"y must hold at least two classes. Got one class, {self.classes_[0]!r}.")
        targets = (2.0 * codes - 1.0)[:, None] if count == 2 else np.eye(count)[codes] - 1 / count
        self._fit_targets(rows, targets, _mistakes, codes)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return the scores f(X), shape (n_test, C); for two classes (n_test,), positive for ``classes_[1]``."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of the largest score, shape (n_test,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return class probabilities softmax(C f(X)), shape (n_test, C): in the order of the scores, not calibrated."""
        return probabilities(logits(self.decision_function(X), len(self.classes_)), 1.0)


def _mistakes(predicted: Tensor, targets: Tensor) -> float:
    """Return the error rate plus, to break ties, a thousandth of the squared error."""
    two = targets.shape[1] == 1
    wrong = (predicted > 0) != (targets > 0) if two else predicted.argmax(1) != targets.argmax(1)
    return float(wrong.double().mean()) + 1e-3 * float((predicted - targets).square().mean())
