"""The recursive feature machine as a scikit-learn classifier."""

from __future__ import annotations

from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data
from torch import Tensor

from ._inputs import numpy_dtype, read_labels
from ._labels import LabelEncoderMixin, check_classes
from ._rfm_base import RFMBase

__all__ = ["RFMClassifier"]


class RFMClassifier(LabelEncoderMixin, RFMBase):
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
    return float(wrong.double().mean()) + 1e-3 * float((predicted - targets).square().mean())
