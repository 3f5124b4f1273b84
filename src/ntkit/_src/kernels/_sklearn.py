"""Any ntkit kernel as a kernel of scikit-learn's Gaussian processes, support vector machines and kernel ridge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.gaussian_process.kernels import Hyperparameter
from sklearn.gaussian_process.kernels import Kernel as _SklearnBase
from torch import Tensor

from ntkit._src.common import check_choice, check_input_shape, check_pairs, fold_rows
from ntkit.errors import InputError

from ._infinite_width_kernel import GAINS, gain, with_gains
from ._kernel import Kernel, check_kernel

Bounds = tuple[float, float] | str


class SklearnKernel(_SklearnBase):
    """The kernel that :func:`as_sklearn_kernel` returns.

    Its gains, None for kernels that have none to tune, are hyperparameters with bounds: ``theta`` holds their logarithms, and
    ``GaussianProcessRegressor`` tunes them.
    """

    def __init__(
        self,
        kernel: Kernel,
        input_shape: Sequence[int] | None = None,
        dtype: str = "float64",
        w_std: float | None = None,
        b_std: float | None = None,
        w_std_bounds: Bounds = (1e-2, 1e2),
        b_std_bounds: Bounds = (1e-4, 1e2),
    ) -> None:
        self.kernel, self.input_shape, self.dtype = kernel, input_shape, dtype
        self.w_std, self.b_std = w_std, b_std
        self.w_std_bounds, self.b_std_bounds = w_std_bounds, b_std_bounds

    # A gain of zero has no finite logarithm: it stays zero.
    @property
    def hyperparameter_w_std(self) -> Hyperparameter:
        """The gain of the weights."""
        return Hyperparameter("w_std", "numeric", self.w_std_bounds if self.w_std else "fixed")

    @property
    def hyperparameter_b_std(self) -> Hyperparameter:
        """The gain of the biases."""
        return Hyperparameter("b_std", "numeric", self.b_std_bounds if self.b_std else "fixed")

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False) -> Any:
        """Return K(X, Y), (n, m), float64; with ``eval_gradient`` also dK/dtheta, (n, n, p), of the p gains that are free."""
        if eval_gradient and Y is not None:
            raise InputError("the gradient exists for K(X, X) only. Got Y too: leave Y or eval_gradient out.")
        if not eval_gradient:
            with torch.no_grad():
                x1, x2 = self._batch(X), None if Y is None else self._batch(Y)
                return _array(check_pairs(self._current()(x1, x2), (len(x1), len(x1 if x2 is None else x2))))
        free = [one.name for one in self.hyperparameters if not one.fixed]
        if not free:
            values = self(X)
            return values, np.empty((*values.shape, 0))
        return self._with_gradient(self._batch(X), free)

    def _with_gradient(self, x: Tensor, free: list[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        with torch.enable_grad():
            logs = [torch.tensor(math.log(getattr(self, name)), dtype=x.dtype, requires_grad=True) for name in free]
            gains = {name: getattr(self, name) for name in GAINS} | {
                name: log.exp() for name, log in zip(free, logs, strict=True)
            }
            gram = with_gains(self.kernel, gains["w_std"], gains["b_std"])(x)
            # The gradient of <U, K> with respect to theta is linear in U; its derivative with respect to U is dK/dtheta.
            probe = torch.zeros_like(gram, requires_grad=True)
            slopes = torch.autograd.grad(gram, logs, probe, create_graph=True)
            each = [torch.autograd.grad(slope, probe, retain_graph=True)[0] for slope in slopes]
        return _array(gram), np.stack([_array(one) for one in each], axis=2)

    def _current(self) -> Kernel:
        """Return the kernel with the current gains."""
        if self.w_std is None or self.b_std is None:
            return self.kernel
        if (self.w_std, self.b_std) == tuple(gain(self.kernel, name) for name in GAINS):
            return self.kernel
        return with_gains(self.kernel, float(self.w_std), float(self.b_std))

    def diag(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return K(x_i, x_i), shape (n,), float64."""
        with torch.no_grad():
            x = self._batch(X)
            return _array(check_pairs(self._current().diag(x), (len(x),), "kernel.diag(x)"))

    def is_stationary(self) -> bool:
        """Return False: K(x, x') depends on more than x - x'."""
        return False

    def __repr__(self) -> str:
        shape = "" if self.input_shape is None else f", input_shape={self.input_shape}"
        gains = "" if self.w_std is None else f", w_std={self.w_std:.3g}, b_std={self.b_std:.3g}"
        return f"SklearnKernel({type(self.kernel).__name__}{shape}{gains})"

    def _batch(self, X: ArrayLike) -> Tensor:
        # torch needs C order, and it warns about read-only memory, such as joblib's.
        rows = np.require(X, dtype=self.dtype, requirements=["C", "W"])
        if rows.ndim != 2:
            raise InputError(f"X must have shape (n, features). Got {rows.shape}: write x.reshape(len(x), -1).")
        return fold_rows(torch.from_numpy(rows), check_input_shape(self.input_shape))


def as_sklearn_kernel(
    kernel: Kernel,
    input_shape: Sequence[int] | None = None,
    dtype: str = "float64",
    *,
    w_std_bounds: Bounds = (1e-2, 1e2),
    b_std_bounds: Bounds = (1e-4, 1e2),
) -> SklearnKernel:
    """Wrap an ntkit kernel for scikit-learn.

    The result is a ``sklearn.gaussian_process.kernels.Kernel``: ``GaussianProcessRegressor(kernel=...)``,
    ``KernelRidge(kernel=...)``, ``SVC(kernel=...)``, and sums and products with scikit-learn's own kernels. With the
    NNGP kernel, the posterior of a Gaussian process is that of the infinitely wide Bayesian network; with the NTK, its mean is
    the infinitely wide network trained by gradient descent [1]_ [2]_.

    The gains of ``ntkit.infinite_width`` are hyperparameters, so ``GaussianProcessRegressor`` tunes them by marginal
    likelihood unless they are fixed. A gain of zero stays zero. The gains of a module in the NTK parametrisation are part of
    it: they are no hyperparameters.

    Parameters
    ----------
    kernel : Kernel
        The kernel, such as ``ntkit.infinite_width(module, b_std=0.1).ntk``; tuning starts from its gains.
    input_shape : tuple of int, optional
        The shape of one input: scikit-learn flattens images, ``input_shape=(3, 32, 32)`` unflattens them. Default None.
    dtype : {"float64", "float32"}
        The dtype in which the kernel computes. scikit-learn always gets float64. Default ``"float64"``.
    w_std_bounds, b_std_bounds : pair of floats or "fixed"
        Bounds of the search for the gains, as in scikit-learn's own kernels; ``"fixed"`` keeps a gain constant. Defaults
        (1e-2, 1e2) and (1e-4, 1e2).

    Returns
    -------
    SklearnKernel

    See Also
    --------
    as_gpytorch_kernel : the same for GPyTorch.
    ntkit.evidence : chooses gains, ridge and depth without either library.

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
    check_kernel(kernel)
    check_choice("dtype", dtype, ("float32", "float64"))
    gains = {name: gain(kernel, name) for name in GAINS}
    known: dict[str, Any] = gains if gains["w_std"] > 0 else {}
    return SklearnKernel(
        kernel, check_input_shape(input_shape), dtype, **known, w_std_bounds=w_std_bounds, b_std_bounds=b_std_bounds
    )


def _array(values: Tensor) -> NDArray[np.float64]:
    return values.detach().cpu().numpy().astype(np.float64, copy=False)
