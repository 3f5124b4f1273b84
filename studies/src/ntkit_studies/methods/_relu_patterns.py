"""Which ReLUs of a network are active for each input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ntkit.extending import measuring

__all__ = ["pattern_distance", "relu_patterns"]

_RECTIFIERS = (F.relu, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_)


class _Rectifiers(TorchFunctionMode):
    """Records the sign of every ReLU's input, whether it is a module, a function or a method."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _RECTIFIERS:
            given = args[0] if args else (kwargs or {})["input"]
            self.found.append((given.detach() > 0).flatten(1))
        return func(*args, **(kwargs or {}))


def relu_patterns(module: nn.Module, x: Tensor) -> Tensor | None:
    """Return whether each ReLU is on for each input, shape (n, units), bool; None for a module without ReLU."""
    with torch.no_grad(), measuring(module), _Rectifiers() as noted:
        module.eval()(x)
    return torch.cat(noted.found, dim=1) if noted.found else None


def pattern_distance(first: Tensor | None, second: Tensor | None) -> float:
    """Return the fraction of units and inputs at which two patterns differ (Hamming distance); NaN if there are none."""
    if first is None or second is None:
        return float("nan")
    return float((first != second).double().mean())
