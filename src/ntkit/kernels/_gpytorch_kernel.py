"""The GPyTorch kernel class; a module of its own so that its instances pickle and GPyTorch stays optional."""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel as _GPyTorchBase
from torch import Tensor

from ntkit.common import fold_rows
from ntkit.errors import InputError

from ._kernel import Kernel

__all__ = ["GPyTorchKernel"]


class GPyTorchKernel(_GPyTorchBase):
    """What :func:`ntkit.as_gpytorch_kernel` gives.

    Attributes
    ----------
    kernel, input_shape
        As given to :func:`ntkit.as_gpytorch_kernel`.
    """

    has_lengthscale = False
    is_stationary = False

    def __init__(self, kernel: Kernel, input_shape: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.kernel = kernel
        self.input_shape = input_shape
        # GPyTorch asks a kernel for its dtype; with no parameters this empty buffer is what model.double() converts.
        self.register_buffer("_anchor", torch.empty(0), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that GPyTorch expects the covariance in."""
        anchor: Tensor = self._anchor
        return anchor.dtype

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """Give K(x1, x2), shape (..., n1, n2), or its diagonal, shape (..., n), for inputs (..., n, features)."""
        if last_dim_is_batch:
            raise InputError(
                "last_dim_is_batch=True asks for one kernel a feature, and a network has no such kernel. Expected "
                "False; for additive structure add kernels of networks that each read some features."
            )
        same = x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2))
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        if not batch:
            return self._matrix(x1, x2, same, diag)
        rows1 = x1.expand(*batch, *x1.shape[-2:]).reshape(-1, *x1.shape[-2:])
        rows2 = x2.expand(*batch, *x2.shape[-2:]).reshape(-1, *x2.shape[-2:])
        parts = [self._matrix(a, b, same, diag) for a, b in zip(rows1, rows2, strict=True)]
        return torch.stack(parts).reshape(*batch, *parts[0].shape)

    def _matrix(self, x1: Tensor, x2: Tensor, same: bool, diag: bool) -> Tensor:
        inputs1 = fold_rows(x1, self.input_shape)
        if same:
            return self.kernel.diag(inputs1) if diag else self.kernel(inputs1)
        values = self.kernel(inputs1, fold_rows(x2, self.input_shape))
        return values.diagonal() if diag else values
