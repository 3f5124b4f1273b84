"""The infinitely wide network as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data
from torch import nn

from ntkit.errors import InputError
from ntkit.kernels import Kernel

from ._base import KernelEstimator
from ._calibration import fit_temperature, logits, probabilities
from ._settings import numpy_dtype

__all__ = ["NTKClassifier"]


class NTKClassifier(ClassifierMixin, KernelEstimator):
    r"""Classification with the exact infinite-width kernel of a network.

    Regression on centred one-hot targets, :math:`Y_{ic} = 1\{y_i = c\} - 1/C`, and the class of the largest score:

    .. math:: f(x) = K(x, X)\, A^{-1} \bigl(I - e^{-A t}\bigr)\, Y, \qquad
              A = K(X, X) + r\,\tfrac{\operatorname{tr} K}{n} I

    With the NTK and r = 0 this is the infinitely wide network trained on the squared loss from zero output by gradient flow,
    for the time t; kernel regression at its end, t infinite [1]_ [2]_. Two classes take one column of targets -1 and 1, which
    is the same classifier.

    Parameters
    ----------
    model : torch.nn.Module, optional
        The network. None is a ReLU network of three hidden layers.
    input_shape : tuple of int, optional
        The shape of one input of the model, such as ``(3, 32, 32)``: images come flattened, one a row of X.
    kernel : {"ntk", "nngp", "precomputed"} or Kernel
        Which kernel of the model; or your own kernel, in place of a model; or ``"precomputed"``: X is then the Gram
        matrix K(X, X) at fit and K(x, X), shape (n_test, n_train), at predict.
    ridge : float, sequence of float or "auto"
        r, relative to ``trace(K)/n``, so that the scale of the kernel never changes an answer. Candidates (a sequence, or
        "auto" for half decades from 1e-8 to 10, from 1e-5 in float32) go with ``tune="loo"``.
    w_std, b_std : float
        The gains of every weight and bias of the model, as in :func:`ntkit.infinite_width`. Unused where ``kernel`` is
        a Kernel or precomputed.
    dtype : {"float64", "float32"}
        What kernel and solution are computed in.
    device : str or torch.device, optional
        Where. None is the CPU. Results are NumPy arrays always.
    stopping_time : float, sequence of float, "auto" or None
        t; None is infinity. Time is that of the flow above: with learning rate :math:`\eta` on half the summed squared
        error, t is :math:`\eta` times the steps, so the useful times are in units of one over the eigenvalues of K. Candidates
        (a sequence, or "auto" for half decades from 1 to 1e10 over trace(K), and infinity) go with ``tune="loo"``.
    tune : {"loo", "evidence"}, optional
        ``"loo"``: by the leave-one-out error, mean squared over points and columns, in closed form
        (:func:`ntkit.leave_one_out`), choose which of ridge and stopping time are given as candidates; where neither is,
        the ridge. ``"evidence"``: by the marginal likelihood of the targets under the Gaussian process with covariance K,
        choose ridge, w_std and b_std, starting from those given, or from ridge 1e-2 and b_std 0.1 in place of zeros
        (:func:`ntkit.evidence`); for ``kernel="ntk"`` or ``"nngp"``.
    encoding : {"centered", "arora", "one-hot"}
        The targets of a point of class c: ``"centered"`` :math:`e_c - 1/C`, ``"arora"`` :math:`e_c - 0.1` (Arora et al. [2]_;
        the same for ten classes), ``"one-hot"`` :math:`e_c`. They differ by one number in all columns, so the scores differ by
        one function of x in all columns: without tuning, classes and probabilities are the same.
    calibration : {"loo"}, optional
        ``"loo"``: the probabilities are softmax(C f / T), with the temperature T most probable given the leave-one-out
        scores, which are those of models that have not seen the point (:func:`ntkit.leave_one_out`), under a weak prior
        around T = 1. It makes a fit two to three times as long. None: T = 1.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted.
    temperature_ : float
        T.
    kernel_ : Kernel
        The kernel in use, or the string ``"precomputed"``.
    X_fit_ : ndarray of shape (n_train, n_features)
        The training inputs; None when precomputed.
    dual_coef_ : ndarray of shape (n_train,) for two classes, (n_train, C) for more
        The coefficients a in f(x) = K(x, X) a.
    ridge_, stopping_time_ : float
        Those in use; infinity is training to the end.
    tuning_ : LeaveOneOut, Evidence or None
        What the tuning found.
    jitter_ : float
        What was added to the ridge because the Gram matrix is singular.
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

    def __init__(
        self,
        model: nn.Module | None = None,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        ridge: float | str | Sequence[float] = 0.0,
        w_std: float = 2**0.5,
        b_std: float = 0.0,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        stopping_time: float | str | Sequence[float] | None = None,
        tune: str | None = None,
        encoding: str = "centered",
        calibration: str | None = "loo",
    ) -> None:
        super().__init__(model, input_shape, kernel, ridge, w_std, b_std, dtype, device, stopping_time, tune)
        self.encoding = encoding
        self.calibration = calibration

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
        offset = self._offset(count)
        if self.calibration not in ("loo", None):
            raise InputError(f"calibration must be 'loo' or None. Got {self.calibration!r}.")
        targets = 2.0 * codes - 1.0 if count == 2 else np.eye(count)[codes] - offset
        left_out = self._fit_targets(rows, targets, left_out=self.calibration is not None)
        self.temperature_ = 1.0 if left_out is None else fit_temperature(logits(left_out, count), codes)
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
        """Give class probabilities softmax(C f(X) / T), shape (n_test, C), columns in the order of ``classes_``.

        Least squares estimates the probabilities as 1/C + f, which may leave [0, 1]. softmax(C f) is the softmax that
        agrees with it to first order: always positive, in the order of the scores, largest where :meth:`predict` says.
        The temperature T, ``temperature_``, calibrates it.
        """
        return probabilities(logits(self.decision_function(X), len(self.classes_)), self.temperature_)

    def _offset(self, classes: int) -> float:
        offsets = {"centered": 1 / classes, "arora": 0.1, "one-hot": 0.0}
        if not isinstance(self.encoding, str) or self.encoding not in offsets:
            raise InputError(f"encoding must be one of {', '.join(map(repr, offsets))}. Got {self.encoding!r}.")
        return offsets[self.encoding]
