"""The number of linear regions of a ReLU network among some inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ntkit._src.common import block_rows, check_batches, check_module, check_precision, measuring, row_blocks
from ntkit._src.kernels.finite_network import check_modes
from ntkit.errors import InputError


@dataclass(frozen=True)
class LinearRegions:
    """Linear regions of a ReLU network.

    Attributes
    ----------
    count
        Distinct patterns of units above and below zero among the inputs.
    inputs
        Number of inputs.
    status
        One sentence: whether the count is saturated, as large as the number of inputs.
    """

    count: int
    inputs: int
    status: str

    @property
    def saturated(self) -> bool:
        """Whether every input has its own region, so that the count carries no information."""
        return self.count == self.inputs


def linear_regions(module: nn.Module, x: Tensor) -> LinearRegions:
    """Count the distinct patterns of ReLU units among some inputs: the expressivity of TE-NAS (Chen et al. 2021).

    Inputs with the same pattern lie in a region on which the network is linear (except for max pooling, whose choices are not
    counted). Whole images almost always have distinct patterns, and the count is then the number of inputs: use many small
    patches and few channels.

    Parameters
    ----------
    module
        A module with ``ReLU``, ``LeakyReLU`` or ``PReLU`` activations, as modules or functions; in evaluation mode.
    x : Tensor of shape (n, ...)
        Inputs.

    Returns
    -------
    LinearRegions

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.applications.search import linear_regions
    >>> net = nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1))
    >>> linear_regions(net, torch.linspace(-1, 1, 50)[:, None]).count
    2
    """
    check_module(module)
    check_batches(x, None)
    check_precision(module)
    check_modes(module)
    patterns: set[bytes] = set()
    for rows in row_blocks(len(x), block_rows(64 * x[0].numel(), x.element_size())):
        recorder = _Signs(rows.stop - rows.start)
        with torch.no_grad(), measuring(module), recorder:
            module(x[rows])
        if not recorder.layers:
            raise InputError(
                "the module must have ReLU units, whose patterns are counted. Found no call of relu, leaky_relu or prelu."
            )
        patterns.update(one.digest() for one in recorder.hashes)
    count = len(patterns)
    status = (
        "Saturated: every input has a region of its own. Take more inputs, smaller patches or fewer channels."
        if count == len(x)
        else f"{count} regions among {len(x)} inputs."
    )
    return LinearRegions(count, len(x), status)


_RECTIFIERS: set[Callable[..., Any]] = {
    F.relu,
    F.relu_,
    F.leaky_relu,
    F.leaky_relu_,
    F.prelu,
    torch.relu,
    torch.relu_,
    torch.prelu,
    Tensor.relu,
    Tensor.relu_,
}


class _Signs(TorchFunctionMode):
    """Watches ReLUs and hashes, row by row, which of their inputs are positive."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.layers = 0
        self.hashes = [hashlib.blake2b(digest_size=16) for _ in range(rows)]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RECTIFIERS:
            values = args[0] if args else (kwargs or {})["input"]
            if len(values) != len(self.hashes):
                raise InputError(
                    f"the module must keep the batch in front. Got {tuple(values.shape)} for {len(self.hashes)} inputs."
                )
            bits = np.packbits((values.detach() > 0).flatten(1).cpu().numpy(), axis=1)
            for row, one in zip(self.hashes, bits, strict=True):
                row.update(one.tobytes())
            self.layers += 1
        return func(*args, **(kwargs or {}))
