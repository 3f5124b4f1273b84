"""The networks whose derivatives are timed, for both sides: ReLU layers and a linear head, NTK parametrisation with biases."""

from __future__ import annotations

from typing import NamedTuple

GAINS = {"w_std": 2**0.5, "b_std": 0.1}


class Case(NamedTuple):
    """A network and the sizes of both batches."""

    rows: int  # inputs that are differentiated
    columns: int
    shape: tuple[int, ...]  # of an input, channels first
    depth: int  # hidden layers; of images 3 x 3 convolutions that keep their size
    average: bool = False  # the head reads the average over all positions, rather than each of them


CASES = {
    "MLP 2": Case(500, 500, (100,), 2),
    "MLP 10": Case(500, 500, (100,), 10),
    "CNN, flatten": Case(10, 30, (3, 32, 32), 3),
    "CNN, average": Case(4, 8, (3, 8, 8), 3, True),
    "distillation": Case(100, 100, (3, 32, 32), 3),
}
