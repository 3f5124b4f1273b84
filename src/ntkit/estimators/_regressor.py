"""The infinitely wide network as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from ._base import KernelEstimator
from ._settings import numpy_dtype

__all__ = ["NTKRegressor"]


class NTKRegressor(MultiOutputMixin, RegressorMixin, KernelEstimator):
    r"""Regression with the exact infinite-width kernel of a network.

    .. math:: f(x) = K(x, X)\,\bigl(K(X, X) + r\,\tfrac{\operatorname{tr} K}{n} I\bigr)^{-1} Y

    With the NTK and r = 0 this is the infinitely wide network trained to convergence on the squared loss from zero
    output [1]_ [2]_; with the NNGP kernel, training its last layer alone. Targets are used as they are: nothing is
    centred or scaled. Far from zero they are better standardised, for instance with
    ``sklearn.compose.TransformedTargetRegressor(regressor, transformer=StandardScaler())``.

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
    kernel_ : Kernel
        The kernel in use, or the string ``"precomputed"``.
    X_fit_ : ndarray of shape (n_train, n_features)
        The training inputs; None when precomputed.
    dual_coef_ : ndarray of shape (n_train,) or (n_train, n_outputs)
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
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(300, random_state=0)
    >>> model = ntkit.NTKRegressor(b_std=0.1, ridge=1e-3).fit(X[:200], y[:200])
    >>> bool(model.score(X[200:], y[200:]) > 0.8)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> NTKRegressor:
        """Compute the Gram matrix and solve for the dual coefficients.

        Parameters
        ----------
        X : array of shape (n_train, n_features), or the Gram matrix (n_train, n_train) when precomputed
        y : array of shape (n_train,) or (n_train, n_outputs)
        """
        dtype = numpy_dtype(self.dtype)
        # The copy keeps a later change of the caller's array out of the predictions.
        rows, targets = validate_data(
            self, X, y, dtype=dtype, multi_output=True, y_numeric=True, copy=not self._is_precomputed()
        )
        self._fit_targets(rows, np.asarray(targets, dtype=dtype))
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Give f(X), shape (n_test,) or (n_test, n_outputs) like y at fit."""
        return self._scores(X)
