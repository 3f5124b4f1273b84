"""Classes as targets of a regression, and scores as classes and calibrated probabilities, for every classifier here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ntkit.errors import InputError

# The prior keeps the minimum inside these bounds.
_LOG_BOUNDS = (-50.0, 50.0)


def check_classes(y: NDArray[Any]) -> NDArray[Any]:
    """Return labels as an array of shape (n,), or raise an error if they are no classes."""
    check_classification_targets(y)
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    return labels


class LabelEncoderMixin(ClassifierMixin):
    """A classifier by regression: ``_encode`` makes the targets, ``_scores`` of the other base predicts them."""

    classes_: NDArray[Any]
    temperature_: float = 1.0

    if TYPE_CHECKING:  # the other base has it, and comes later

        def _scores(self, X: ArrayLike) -> NDArray[Any]:
            """Return the predicted targets, shape (n,), (n, 1) or (n, C)."""

    def _encode(self, labels: NDArray[Any], offset: float | None = None) -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Set ``classes_``, and return the class numbers, shape (n,), and the targets.

        These are -1 and 1 for two classes, shape (n,), otherwise e_c - offset, shape (n, C); 1/C, the default, centres them.
        """
        self.classes_, codes = np.unique(labels, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise InputError(f"y must hold at least two classes. Got one class, {self.classes_[0]!r}.")
        if count == 2:
            return codes, 2.0 * codes - 1.0
        return codes, np.eye(count)[codes] - (1 / count if offset is None else offset)

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Return the scores f(X), shape (n_test, C); for two classes (n_test,), positive for ``classes_[1]``."""
        scores = self._scores(X)
        return scores[:, 0] if scores.ndim == 2 and scores.shape[1] == 1 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of the largest score, shape (n_test,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Return class probabilities softmax(C f(X) / T), shape (n_test, C), columns in the order of ``classes_``.

        Least squares estimates the probabilities as 1/C + f, which may lie outside [0, 1]. softmax(C f) is the softmax that
        agrees with it to first order: always positive, in the order of the scores, largest for the class of :meth:`predict`.
        The temperature T, ``temperature_``, calibrates it; it is 1 for classifiers without calibration.
        """
        values = logits(self.decision_function(X), len(self.classes_))
        return np.asarray(softmax(values / self.temperature_, axis=1))


def logits(scores: NDArray[Any], classes: int) -> NDArray[Any]:
    """Return C f, shape (n, C); the single column for two classes is f_1 - f_0."""
    if scores.ndim == 1:
        return np.stack([-scores, scores], axis=1)
    return classes * scores


def fit_temperature(values: NDArray[Any], codes: NDArray[np.intp], weights: NDArray[Any] | None = None) -> float:
    """Return the most probable temperature T > 0 of softmax(values / T), for points of known class and weight.

    The prior is log T ~ N(0, 1), worth about one data point of belief in T = 1, so that T stays away from zero if every
    point is classified correctly and from infinity if scores say nothing. The values, shape (n, C), come from models that have
    not seen the point of their row; codes, shape (n,), are the classes, 0 to C - 1.

    Examples
    --------
    >>> values = np.array([[3.0, -3.0], [3.0, -3.0], [-3.0, 3.0], [-3.0, 3.0], [3.0, -3.0]])
    >>> sure, unsure = fit_temperature(values, np.array([0, 0, 1, 1, 0])), fit_temperature(values, np.array([0, 1, 1, 1, 0]))
    >>> sure < unsure
    True
    """
    rows, counts = np.arange(len(codes)), np.ones(len(codes)) if weights is None else weights

    def loss(log_temperature: float) -> float:
        likelihood = counts @ log_softmax(values * math.exp(-log_temperature), axis=1)[rows, codes]
        return log_temperature**2 / 2 - float(likelihood)

    found = minimize_scalar(loss, bounds=_LOG_BOUNDS, method="bounded", options={"xatol": 1e-7})
    return math.exp(float(found.x))
