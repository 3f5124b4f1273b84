"""Checks of the arguments that the synthetic tasks share."""

from __future__ import annotations

import math

import torch

from ntkit.errors import InputError, InputTypeError

__all__ = ["check_alpha", "check_count", "check_generator"]


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
