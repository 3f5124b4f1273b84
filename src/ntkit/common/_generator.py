"""Checks of random number generators."""

from __future__ import annotations

import torch

from ntkit.errors import InputTypeError

__all__ = ["check_generator"]


def check_generator(generator: object) -> None:
    """Refuse anything but None or a generator on the CPU."""
    if generator is None:
        return
    if not isinstance(generator, torch.Generator):
        raise InputTypeError(
            f"generator must be a torch.Generator or None. Got {type(generator).__name__}. "
            "Write torch.Generator().manual_seed(0)."
        )
    if generator.device.type != "cpu":
        raise InputTypeError(f"generator must be on the CPU. Got one on {generator.device}. Write torch.Generator().")
