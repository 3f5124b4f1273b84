"""Random number generators: checks, and what must not touch the user's own."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from ntkit.errors import InputTypeError

__all__ = ["check_generator", "random_state", "restored_generator", "restored_random_state"]

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
    """Restore the global generators of torch, numpy and Python at the end of the context, which one thread enters at a time.

    Layers draw their first weights from torch's, some from numpy's or Python's, all of which belong to the user.

    Parameters
    ----------
    seed
        Seed of the global generators inside the context. Default None: they go on from their states.
    """
    with _ONE_AT_A_TIME, restored_random_state(), torch.random.fork_rng(devices=[] if seed is None else None):
        if seed is not None:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
        yield


def random_state() -> tuple[object, ...]:
    """Return the states of all global generators, to compare: equal as long as nothing draws from them."""
    own = np.random.get_state(legacy=False)
    words = own["state"]
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [])]
    return (
        *(state.numpy().tobytes() for state in states),
        *(np.asarray(words[name]).tobytes() for name in words),
        own["has_gauss"],
        own["gauss"],
        random.getstate(),
    )


@contextmanager
def restored_random_state() -> Iterator[None]:
    """Restore the states of torch's generators, of numpy's and of Python's global ones, if something drew from them."""
    before = random_state()
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        if random_state() != before:
            torch.set_rng_state(torch_state)
            if devices:
                torch.cuda.set_rng_state_all(devices)
            np.random.set_state(numpy_state)
            random.setstate(python_state)
