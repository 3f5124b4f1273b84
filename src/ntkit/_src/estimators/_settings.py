"""The estimators' parameters, read and checked at fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ntkit._src.common import restored_generator, shown
from ntkit._src.kernels import Kernel, infinite_width
from ntkit.errors import InputError, InputTypeError

__all__ = ["build_kernel", "build_module", "numpy_dtype", "read_device", "read_dtype"]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_HIDDEN_LAYERS = 3
# The limit does not depend on the width; a small width makes the module cheap to build and to trace.
_HIDDEN_WIDTH = 16


def read_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype, or raise an error that lists the options."""
    if isinstance(dtype, torch.dtype) and dtype in _DTYPES.values():
        return dtype
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    raise InputError(f"dtype must be 'float32' or 'float64'. Got {dtype!r}.")


def numpy_dtype(dtype: str | torch.dtype) -> type[np.floating[Any]]:
    """Return the NumPy dtype in which input is read."""
    return np.float32 if read_dtype(dtype) == torch.float32 else np.float64


def read_device(device: str | torch.device | None) -> torch.device:
    """Return a device that this machine has; None is the CPU."""
    if device is None:
        return torch.device("cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device must be one that torch can use here, such as 'cpu', or None for it. Got {device!r}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    if found.type == "meta":
        raise InputError("device must hold values. Got 'meta': pass 'cpu', or None for it.")
    return found


def build_kernel(
    kernel: str | Kernel,
    module: nn.Module | None,
    input_shape: Sequence[int] | None,
    n_features: int,
    w_std: float | None,
    b_std: float | None,
) -> Kernel | None:
    """Return the kernel that the parameters describe; None for a precomputed one."""
    if isinstance(kernel, Kernel):
        if module is not None:
            raise InputError(
                f"module and your own kernel specify two kernels. Got module={type(module).__name__} and "
                f"kernel={type(kernel).__name__}: leave module out, or write kernel='ntk' or 'nngp'."
            )
        return kernel
    if not isinstance(kernel, str) or kernel not in ("ntk", "nngp", "precomputed"):
        raise InputError(f"kernel must be 'ntk', 'nngp', 'precomputed' or an ntkit Kernel. Got {shown(kernel)}.")
    if kernel == "precomputed":
        if module is not None or input_shape is not None:
            raise InputError(
                "kernel='precomputed' takes the Gram matrix as X, so module and input_shape must be None. "
                "Leave them out, or write kernel='ntk' and pass the inputs."
            )
        return None
    limit = infinite_width(build_module(module, input_shape, n_features), w_std=w_std, b_std=b_std)
    return limit.ntk if kernel == "ntk" else limit.nngp


def build_module(module: nn.Module | None, input_shape: Sequence[int] | None, n_features: int) -> nn.Module:
    """Return the network whose kernel is used: the given one, or the default."""
    if module is None:
        return _default_module(n_features, flatten=input_shape is not None)
    if not isinstance(module, nn.Module):
        raise InputTypeError(
            f"module must be a torch.nn.Module or None. Got {shown(module)} of type {type(module).__name__}: "
            "pass an instance such as nn.Sequential(...)."
        )
    return module


def _default_module(n_features: int, flatten: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()] if flatten else []
    # torch draws initial weights from its global generator; fitting must not advance the user's.
    with restored_generator():
        width = n_features
        for _ in range(_HIDDEN_LAYERS):
            layers += [nn.Linear(width, _HIDDEN_WIDTH), nn.ReLU()]
            width = _HIDDEN_WIDTH
        layers.append(nn.Linear(width, 1))
    return nn.Sequential(*layers)
