"""The infinitely wide network as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from ntkit.errors import InputError

from ._base import KernelEstimator
from ._settings import numpy_dtype

__all__ = ["NTKClassifier"]


class NTKClassifier(ClassifierMixin, KernelEstimator):
    r"""Classification with the exact infinite-width kernel of a network.

    Kernel regression on centred one-hot targets, :math:`Y_{ic} = 1\{y_i = c\} - 1/C`, and the class of the largest
    score (Arora et al. [2]_, -0.1 and 0.9 for ten classes):

    .. math:: f(x) = K(x, X)\,\bigl(K(X, X) + r\,\tfrac{\operatorname{tr} K}{n} I\bigr)^{-1} Y

    With the NTK and r = 0 this is the infinitely wide network trained to convergence on the squared loss from zero
    output [1]_ [2]_. Two classes take one column of targets -1 and 1, which is the same classifier.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The network. None is a ReLU network of three hidden layers.
    input_shape : tuple of int, optional
        The shape of one input of the model, such as ``(3, 32, 32)``: images come flattened, one a row of X.
    kernel : {"ntk", "nngp", "precomputed"} or Kernel
        Which kernel of the model; or your own kernel, in place of a model; or ``"precomputed"``: X is then the Gram
        matrix K(X, X) at fit and K(x, X), shape (n_test, n_train), at predict.
    ridge : float
        r, relative to ``trace(K)/n``, so that the scale of the kernel never changes an answer.
    w_std, b_std : float
        The gains of every weight and bias of the model, as in :func:`ntkit.infinite_width`. Unused where ``kernel`` is
        a Kernel or precomputed.
    dtype : {"float64", "float32"}
        What kernel and solution are computed in.
    device : str or torch.device, optional
        Where. None is the CPU. Results are NumPy arrays always.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    kernel_ : Kernel
        The kernel in use, or the string ``"precomputed"``.
    X_fit_ : ndarray of shape (n_train, n_features)
        The training inputs; None when precomputed.
    dual_coef_ : ndarray of shape (n_train,) for two classes, (n_train, C) for more
        The coefficients (K + r trace(K)/n I)^-1 Y.
    solution_status_ : str
        How the linear system was solved, and whether it needed jitter.
    n_features_in_ : int
        The number of columns of X at fit.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, where X had string names for all.

    References
    ----------
    .. [1] Jacot, Gabriel, Hongler, "Neural Tangent Kernel: Convergence and Generalization in Neural Networks", 2018.
    .. [2] Arora, Du, Hu, Li, Salakhutdinov, Wang, "On Exact Computation with an Infinitely Wide Neural Net", 2019.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ntkit.NTKClassifier().fit(X[::4], y[::4])
    >>> bool(model.score(X[1::4], y[1::4]) > 0.9)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> NTKClassifier:
        """Compute the Gram matrix and solve for the dual coefficients.

        Parameters
        ----------
        X : array of shape (n_train, n_features), or the Gram matrix (n_train, n_train) when precomputed
        y : array of shape (n_train,)
            Labels of any type: integers, strings, booleans.
        """
        # The copy keeps a later change of the caller's array out of the predictions.
        rows, labels = validate_data(self, X, y, dtype=numpy_dtype(self.dtype), copy=not self._is_precomputed())
        check_classification_targets(labels)
        self.classes_, codes = np.unique(column_or_1d(labels, warn=True), return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise InputError(f"y must hold at least two classes. Got one class, {self.classes_[0]!r}.")
        targets = 2.0 * codes - 1.0 if count == 2 else np.eye(count)[codes] - 1 / count
        self._fit_targets(rows, targets)
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Give the scores f(X), shape (n_test, C); for two classes (n_test,), positive for ``classes_[1]``."""
        return self._scores(X)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Give the label of the largest score, shape (n_test,)."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """Give class probabilities softmax(C f(X)), shape (n_test, C), columns in the order of ``classes_``.

        Least squares estimates the probabilities as 1/C + f, which may leave [0, 1]. softmax(C f) is the softmax that
        agrees with it to first order: always positive, in the order of the scores, largest where :meth:`predict` says.
        It is not calibrated; ``sklearn.calibration.CalibratedClassifierCV`` does that.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1) / 2
        return np.asarray(softmax(len(self.classes_) * scores, axis=1))
