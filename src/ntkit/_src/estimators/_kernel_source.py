"""Where the kernel of a fit comes from: a network, a kernel, or a Gram matrix given in place of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from torch import nn

from ntkit._src.common import restored_generator, shown
from ntkit._src.kernels import InfiniteWidth, Kernel, infinite_width
from ntkit.errors import InputError, InputTypeError

Which = Literal["ntk", "nngp"]

_HIDDEN_LAYERS = 3
# The limit does not depend on the width; a small width makes the module cheap to build and to trace.
_HIDDEN_WIDTH = 16


@dataclass(frozen=True)
class KernelSource:
    """The kernel that the parameters describe."""

    kernel: Kernel | None  # None if the rows of X are those of a Gram matrix
    # Of the network, so that a tuner tries other gains without tracing it again; None for the user's own kernel.
    limit: InfiniteWidth | None = None
    which: Which = "ntk"


def kernel_of(limit: InfiniteWidth, which: Which) -> Kernel:
    """Return the kernel of a limit that a name refers to."""
    return limit.ntk if which == "ntk" else limit.nngp


def read_source(
    kernel: str | Kernel,
    module: nn.Module | None,
    input_shape: Sequence[int] | None,
    n_features: int,
    w_std: float | None = None,
    b_std: float | None = None,
) -> KernelSource:
    """Return the source that an estimator's parameters describe; this traces a module, and nothing after it does."""
    if isinstance(kernel, Kernel):
        if module is not None:
            raise InputError(
                f"module and your own kernel specify two kernels. Got module={type(module).__name__} and "
                f"kernel={type(kernel).__name__}: leave module out, or write kernel='ntk' or 'nngp'."
            )
        return KernelSource(kernel)
    if not isinstance(kernel, str) or kernel not in ("ntk", "nngp", "precomputed"):
        raise InputError(f"kernel must be 'ntk', 'nngp', 'precomputed' or an ntkit Kernel. Got {shown(kernel)}.")
    if kernel == "precomputed":
        if module is not None or input_shape is not None:
            raise InputError(
                "kernel='precomputed' takes the Gram matrix as X, so module and input_shape must be None. "
                "Leave them out, or write kernel='ntk' and pass the inputs."
            )
        return KernelSource(None)
    limit = infinite_width(build_module(module, input_shape, n_features), w_std=w_std, b_std=b_std)
    which = cast(Which, kernel)
    return KernelSource(kernel_of(limit, which), limit, which)


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
