"""What the regressor and the classifier share: the kernel, the dual coefficients, scores in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit.kernels import Kernel
from ntkit.kernels._rows import check_input_shape, fold_rows
from ntkit.solvers import check_ridge, solve

from ._settings import build_kernel, numpy_dtype, read_device, read_dtype

__all__ = ["KernelEstimator"]

_BLOCK_BYTES = 2**26
_FEWEST_BLOCK_ROWS = 64


class KernelEstimator(BaseEstimator):
    """Kernel regression f(x) = K(x, X) (K(X, X) + ridge trace(K)/n I)^-1 Y for targets Y that a subclass makes."""

    def __init__(
        self,
        model: nn.Module | None = None,
        input_shape: Sequence[int] | None = None,
        kernel: str | Kernel = "ntk",
        ridge: float = 0.0,
        w_std: float = 2**0.5,
        b_std: float = 0.0,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
    ) -> None:
        self.model = model
        self.input_shape = input_shape
        self.kernel = kernel
        self.ridge = ridge
        self.w_std = w_std
        self.b_std = b_std
        self.dtype = dtype
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._is_precomputed()
        return tags

    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _fit_targets(self, X: NDArray[Any], targets: NDArray[Any]) -> None:
        """Solve for the dual coefficients; X is validated already, targets have shape (n,) or (n, k)."""
        dtype, device, ridge = read_dtype(self.dtype), read_device(self.device), check_ridge(self.ridge)
        kernel = build_kernel(self.kernel, self.model, self.input_shape, X.shape[1], self.w_std, self.b_std)
        if kernel is None and X.shape[0] != X.shape[1]:
            raise InputError(f"kernel='precomputed' needs the square Gram matrix K(X, X) at fit. Got shape {X.shape}.")
        with torch.no_grad():
            batch = self._batch(X, dtype, device)
            gram = batch if kernel is None else kernel(batch)
            if tuple(gram.shape) != (len(X), len(X)):
                raise InputError(f"kernel(x) must have shape {(len(X), len(X))}. Got {tuple(gram.shape)}.")
            solution = solve(gram, _tensor(targets, dtype, device), ridge=ridge)
        self.kernel_: Kernel | str = "precomputed" if kernel is None else kernel
        self.X_fit_ = None if kernel is None else X
        self.dual_coef_ = solution.value.cpu().numpy()
        self.solution_status_ = solution.status

    def _scores(self, X: ArrayLike) -> NDArray[Any]:
        """Give K(x, X) times the dual coefficients, shape (n,) or (n, k), a block of rows at a time."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=numpy_dtype(self.dtype))
        dtype, device = read_dtype(self.dtype), read_device(self.device)
        kernel, dual = self.kernel_, _tensor(self.dual_coef_, dtype, device)
        with torch.no_grad():
            points = None if self.X_fit_ is None else self._batch(self.X_fit_, dtype, device)
            size = max(_FEWEST_BLOCK_ROWS, _BLOCK_BYTES // (len(dual) * dtype.itemsize))
            blocks = []
            for start in range(0, len(rows), size):
                block = self._batch(rows[start : start + size], dtype, device)
                gram = kernel(block, points) if isinstance(kernel, Kernel) else block
                blocks.append(gram @ dual)
        # scikit-learn expects float64 whatever the estimator computes in.
        return torch.cat(blocks).double().cpu().numpy()

    def _batch(self, X: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
        return fold_rows(_tensor(X, dtype, device), check_input_shape(self.input_shape))


def _tensor(array: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    # A copy only where torch needs one: it cannot hold negative strides and warns about read-only memory.
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device=device, dtype=dtype)
