"""Draws from torch's global generator that leave no trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator, from which layers draw weights and dropout masks, and restore it afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
