"""Random number generators: checks, and what must not touch the user's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ntkit.errors import InputTypeError

__all__ = ["check_generator", "restored_generator"]

# The global generator belongs to the process: two threads that restore it in turn would draw from each other's state.
_ONE_AT_A_TIME = threading.RLock()


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


@contextmanager
def restored_generator(seed: int | None = None) -> Iterator[None]:
    """Restore torch's global generator at the end of the context, which one thread enters at a time.

    Layers draw their first weights from the global generator, which belongs to the user.

    Parameters
    ----------
    seed
        Seed of the global generator inside the context. Default None: it goes on from its state.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[] if seed is None else None):
        if seed is not None:
            torch.manual_seed(seed)
        yield
