"""The infinitely wide network as a scikit-learn regressor."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from ._base import KernelEstimator
from ._settings import numpy_dtype

__all__ = ["NTKRegressor"]


class NTKRegressor(MultiOutputMixin, RegressorMixin, KernelEstimator):
    r"""Regression with the exact infinite-width kernel of a network.

    .. math:: f(x) = K(x, X)\, A^{-1} \bigl(I - e^{-A t}\bigr)\, Y, \qquad
              A = K(X, X) + r\,\tfrac{\operatorname{tr} K}{n} I

    With the NTK and r = 0 this is the infinitely wide network trained on the squared loss from zero output by gradient flow,
    for the time t; kernel regression at its end, t infinite [1]_ [2]_. With the NNGP kernel only the last layer is
    trained. Targets are used as they are: nothing is
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

    Attributes
    ----------
    kernel_ : Kernel
        The kernel in use, or the string ``"precomputed"``.
    X_fit_ : ndarray of shape (n_train, n_features)
        The training inputs; None when precomputed.
    dual_coef_ : ndarray of shape (n_train,) or (n_train, n_outputs)
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
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(300, random_state=0)
    >>> model = ntkit.NTKRegressor(b_std=0.1, ridge=1e-3).fit(X[:200], y[:200])
    >>> bool(model.score(X[200:], y[200:]) > 0.8)
    True
    >>> tuned = ntkit.NTKRegressor(b_std=0.1, tune="loo").fit(X[:200], y[:200])
    >>> bool(tuned.score(X[200:], y[200:]) > 0.8)
    True
    >>> mean, std = tuned.predict(X[200:], return_std=True)
    >>> mean.shape, std.shape
    ((100,), (100,))
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

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[False] = False) -> NDArray[Any]: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[NDArray[Any], NDArray[Any]]: ...

    def predict(self, X: ArrayLike, return_std: bool = False) -> NDArray[Any] | tuple[NDArray[Any], NDArray[Any]]:
        r"""Give f(X), shape (n_test,) or (n_test, n_outputs) like y at fit.

        Parameters
        ----------
        X : array of shape (n_test, n_features), or K(X_test, X_train) when precomputed
        return_std : bool
            Give the standard deviation too: that of the Gaussian process with covariance K, conditioned on the targets
            with the ridge as the variance of their noise,

            .. math:: \sigma^2(x) = K(x, x) - K(x, X)\, A^{-1} \bigl(I - e^{-2 A t}\bigr)\, K(X, x),

            which at finite t is the spread of gradient flows that start at draws of that process and fit targets with
            noise drawn anew. For ``kernel="nngp"`` and infinite t this is the exact Bayesian posterior of the infinitely wide
            network. For ``kernel="ntk"`` the prior covariance is the NTK, not the network's own; the spread of trained
            networks is ``ntkit.posterior``. It is in the units of K, whatever the scale of the targets: standardise
            them, or let ``tune="evidence"`` fit that scale. It costs as much as the fit.

        Returns
        -------
        mean : ndarray
            f(X).
        std : ndarray of the same shape
            Only with ``return_std``; the same for every output.
        """
        mean = self._scores(X)
        if not return_std:
            return mean
        std = self._deviations(X)
        return mean, std if mean.ndim == 1 else np.repeat(std[:, None], mean.shape[1], axis=1)
