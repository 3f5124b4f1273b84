"""What the synthetic tasks share: checks of their arguments, and rotations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

__all__ = ["check_alpha", "check_count", "check_generator", "random_rotation"]


def check_count(name: str, value: int) -> None:
    """Refuse anything but a positive integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputTypeError(f"{name} must be an integer. Got {value!r}.")
    if value < 1:
        raise InputError(f"{name} must be at least 1. Got {value}.")


def check_alpha(alpha: float) -> None:
    """Refuse a decay that is negative or not a number."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)):
        raise InputTypeError(f"alpha must be a number, or None for isotropic inputs. Got {alpha!r}.")
    if not (math.isfinite(alpha) and alpha >= 0):
        raise InputError(f"alpha must be finite and not negative. Got {alpha}.")


def check_generator(generator: torch.Generator) -> None:
    """Refuse anything but a generator."""
    if not isinstance(generator, torch.Generator):
        raise InputTypeError(
            f"generator must be a torch.Generator. Got {type(generator).__name__}: write torch.Generator().manual_seed(0)."
        )


def random_rotation(size: int, generator: torch.Generator) -> Tensor:
    """Draw an orthogonal matrix from the Haar measure, shape (size, size), float64, on the generator's device."""
    normal = torch.randn(size, size, generator=generator, dtype=torch.float64, device=generator.device)
    q, r = torch.linalg.qr(normal)
    rotation: Tensor = q * torch.sign(r.diagonal())  # without the signs it would not be the Haar measure
    return rotation
