"""Any ntkit kernel as a kernel of scikit-learn's Gaussian processes, support vector machines and kernel ridge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.gaussian_process.kernels import Kernel as _SklearnBase
from torch import Tensor

from ntkit.common import check_input_shape, fold_rows
from ntkit.errors import InputError, InputTypeError

from ._kernel import Kernel

__all__ = ["SklearnKernel", "as_sklearn_kernel"]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


class SklearnKernel(_SklearnBase):
    """What :func:`as_sklearn_kernel` gives: no hyperparameters, so ``theta`` is empty and nothing is optimised.

    Attributes
    ----------
    kernel, input_shape, dtype
        As given to :func:`as_sklearn_kernel`.
    """

    def __init__(self, kernel: Kernel, input_shape: Sequence[int] | None = None, dtype: str = "float64") -> None:
        self.kernel = kernel
        self.input_shape = input_shape
        self.dtype = dtype

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Any:
        """Give K(X, Y), shape (n, m), float64; with ``eval_gradient`` also the empty gradient, shape (n, n, 0)."""
        if eval_gradient and Y is not None:
            raise InputError("the gradient exists for K(X, X) only. Got Y too: leave Y or eval_gradient out.")
        with torch.no_grad():
            gram = self.kernel(self._batch(X), None if Y is None else self._batch(Y))
        values = _array(gram)
        return (values, np.empty((*values.shape, 0))) if eval_gradient else values

    def diag(self, X: ArrayLike) -> NDArray[np.float64]:
        """Give K(x_i, x_i), shape (n,), float64."""
        with torch.no_grad():
            return _array(self.kernel.diag(self._batch(X)))

    def is_stationary(self) -> bool:
        """Say no: K(x, x') depends on more than x - x'."""
        return False

    def __repr__(self) -> str:
        shape = "" if self.input_shape is None else f", input_shape={self.input_shape}"
        return f"SklearnKernel({type(self.kernel).__name__}{shape})"

    def _batch(self, X: ArrayLike) -> Tensor:
        # order="C" and the requirement of writing are torch's: it warns about read-only memory, as joblib hands out.
        rows = np.require(X, dtype=self.dtype, requirements=["C", "W"])
        if rows.ndim != 2:
            raise InputError(f"X must have shape (n, features). Got {rows.shape}: write x.reshape(len(x), -1).")
        return fold_rows(torch.from_numpy(rows), check_input_shape(self.input_shape))


def as_sklearn_kernel(
    kernel: Kernel, input_shape: Sequence[int] | None = None, dtype: str = "float64"
) -> SklearnKernel:
    """Give an ntkit kernel to scikit-learn.

    The result is a ``sklearn.gaussian_process.kernels.Kernel``: ``GaussianProcessRegressor(kernel=...)``,
    ``KernelRidge(kernel=...)``, ``SVC(kernel=...)``, and sums and products with scikit-learn's own kernels. With the
    NNGP kernel, the posterior of the first is that of the infinitely wide Bayesian network; with the NTK, its mean is
    the infinitely wide network trained by gradient descent [1]_ [2]_.

    Parameters
    ----------
    kernel : Kernel
        Such as ``ntkit.infinite_width(module).ntk``.
    input_shape : tuple of int, optional
        The shape of one input: scikit-learn holds images flattened, ``input_shape=(3, 32, 32)`` unfolds them.
    dtype : {"float64", "float32"}
        What the kernel computes in. scikit-learn always gets float64.

    Returns
    -------
    SklearnKernel

    References
    ----------
    .. [1] Jacot, Gabriel, Hongler, "Neural Tangent Kernel: Convergence and Generalization in Neural Networks", 2018.
    .. [2] Arora, Du, Hu, Li, Salakhutdinov, Wang, "On Exact Computation with an Infinitely Wide Neural Net", 2019.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
    >>> kernel = ntkit.as_sklearn_kernel(ntkit.infinite_width(net, b_std=0.1).ntk)
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(SVC(kernel=kernel).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9)
    True
    """
    if not isinstance(kernel, Kernel):
        raise InputTypeError(
            f"kernel must be an ntkit Kernel, such as ntkit.infinite_width(module).ntk. Got {type(kernel).__name__}."
        )
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise InputError(f"dtype must be one of {', '.join(map(repr, _DTYPES))}. Got {dtype!r}.")
    return SklearnKernel(kernel, check_input_shape(input_shape), dtype)


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.detach().cpu().numpy().astype(np.float64, copy=False)
