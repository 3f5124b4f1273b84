"""Random numbers: the user's global generators, which must stay untouched, and random rotations."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

__all__ = ["random_rotation", "random_state", "restored_generator", "restored_random_state"]

# Layers draw their first weights from torch's, some from numpy's or Python's, all of which belong to the user.
# The global generator belongs to the process: two threads that restore it in turn would draw from each other's state.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def restored_generator(seed: int | None = None) -> Iterator[None]:
    """Restore the global generators of torch, numpy and Python at the end; they start from ``seed`` unless it is None."""
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


def random_rotation(size: int, generator: torch.Generator) -> Tensor:
    """Draw an orthogonal matrix from the Haar measure, shape (size, size), float64, on the generator's device."""
    normal = torch.randn(size, size, generator=generator, dtype=torch.float64, device=generator.device)
    q, r = torch.linalg.qr(normal)
    rotation: Tensor = q * torch.sign(r.diagonal())  # without the signs it would not be the Haar measure
    return rotation
