"""The GPyTorch kernel class, in a separate module so that its instances pickle and GPyTorch stays optional."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel as _GPyTorchBase
from gpytorch.priors import Prior
from torch import Tensor

from ntkit._src.common import check_pairs, fold_rows
from ntkit.errors import InputError

from ._infinite_width_kernel import GAINS, gain, with_gains
from ._kernel import Kernel


def _gain_property(name: str, doc: str) -> Any:
    return property(lambda kernel: kernel._gain(name), lambda kernel, value: kernel._set_gain(name, value), doc=doc)


class GPyTorchKernel(_GPyTorchBase):
    """The kernel that :func:`ntkit.as_gpytorch_kernel` returns; it has ``raw_w_std`` and ``raw_b_std`` unless they are zero."""

    has_lengthscale = False
    is_stationary = False

    def __init__(
        self,
        kernel: Kernel,
        input_shape: tuple[int, ...] | None = None,
        priors: Mapping[str, Prior | None] | None = None,
        constraints: Mapping[str, Interval | None] | None = None,
    ) -> None:
        super().__init__()
        self.kernel = kernel
        self.input_shape = input_shape
        self._known: tuple[tuple[float, float], Kernel] | None = None
        # GPyTorch asks a kernel for its dtype; without parameters, model.double() converts this empty buffer instead.
        self.register_buffer("_anchor", torch.empty(0), persistent=False)
        self._names = tuple(name for name in GAINS if gain(kernel, name) > 0)
        for name in GAINS:
            prior, constraint = (priors or {}).get(name), (constraints or {}).get(name)
            if name in self._names:
                self._register(name, prior, constraint)
            elif prior is not None or constraint is not None:
                raise InputError(
                    f"{name} is not a parameter of this kernel, so it takes no prior and no constraint. Expected a kernel of "
                    f"ntkit.infinite_width with {name} above zero."
                )

    def _register(self, name: str, prior: Prior | None, constraint: Interval | None) -> None:
        self.register_parameter(f"raw_{name}", torch.nn.Parameter(torch.zeros(())))
        self.register_constraint(f"raw_{name}", Positive() if constraint is None else constraint)
        if prior is not None:
            self.register_prior(
                f"{name}_prior",
                prior,
                lambda module: getattr(module, name),
                lambda module, value: module._set_gain(name, value),
            )
        self._set_gain(name, gain(self.kernel, name))

    w_std = _gain_property("w_std", "The gain of the weights, a scalar; may be set.")
    b_std = _gain_property("b_std", "The gain of the biases, a scalar; may be set.")

    def _gain(self, name: str) -> Tensor:
        if name not in self._names:
            return torch.tensor(gain(self.kernel, name)).to(self._anchor)
        value: Tensor = getattr(self, f"raw_{name}_constraint").transform(getattr(self, f"raw_{name}"))
        return value

    def _set_gain(self, name: str, value: float | Tensor) -> None:
        if name not in self._names:
            raise InputError(f"{name} is not a parameter of this kernel and cannot be set.")
        raw = getattr(self, f"raw_{name}")
        number = torch.as_tensor(value).to(raw).reshape(())
        self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(number)})

    def _current(self) -> Kernel:
        """Return the kernel with the current gains, connected to them by autograd if gradients are recorded."""
        if not self._names:
            return self.kernel
        w_std, b_std = self.w_std, self.b_std
        if w_std.requires_grad or b_std.requires_grad:
            return with_gains(self.kernel, w_std, b_std)
        values = (float(w_std), float(b_std))
        if self._known is None or self._known[0] != values:
            self._known = (values, with_gains(self.kernel, *values))
        return self._known[1]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that GPyTorch expects the covariance in."""
        anchor: Tensor = self._anchor
        return anchor.dtype

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """Return K(x1, x2), shape (..., n1, n2), or its diagonal, shape (..., n), for inputs (..., n, features)."""
        if last_dim_is_batch:
            raise InputError(
                "last_dim_is_batch=True asks for one kernel per feature, and a network has no such kernel. Expected "
                "False; for additive structure add kernels of networks that each read some features."
            )
        same = x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2))
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        kernel = self._current()
        if not batch:
            return self._matrix(kernel, x1, x2, same, diag)
        rows1 = x1.expand(*batch, *x1.shape[-2:]).reshape(-1, *x1.shape[-2:])
        rows2 = x2.expand(*batch, *x2.shape[-2:]).reshape(-1, *x2.shape[-2:])
        parts = [self._matrix(kernel, a, b, same, diag) for a, b in zip(rows1, rows2, strict=True)]
        return torch.stack(parts).reshape(*batch, *parts[0].shape)

    def _matrix(self, kernel: Kernel, x1: Tensor, x2: Tensor, same: bool, diag: bool) -> Tensor:
        inputs1 = fold_rows(x1, self.input_shape)
        n1, n2 = len(x1), len(x2)
        if same:
            return check_pairs(kernel.diag(inputs1), (n1,)) if diag else check_pairs(kernel(inputs1), (n1, n1))
        values = check_pairs(kernel(inputs1, fold_rows(x2, self.input_shape)), (n1, n2))
        return values.diagonal() if diag else values
