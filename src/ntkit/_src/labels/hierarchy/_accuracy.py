"""The number of random neurons for an accuracy: they are drawn until the standard error is small enough."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ._two_layer_hierarchy import TwoLayerHierarchy

__all__ = ["Accuracy", "draw_until", "measure"]

FIRST = 2048
"""Neurons of the first attempt."""

PROBES = 32
"""Maximum number of training points at which the error is measured."""

MARGIN = 1.2
"""Safety factor on the number of neurons, which assumes that the error falls with its square root."""


@dataclass(frozen=True)
class Accuracy:
    """How accurately a label part is known from random neurons.

    Attributes
    ----------
    error
        The largest standard error over the largest entry of the label part, on (at most 32 of) the training points.
    n_samples
        The number of random neurons.
    rtol
        The requested error; None if the number of neurons was given instead.
    """

    error: float
    n_samples: int
    rtol: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the requested error was reached."""
        return self.rtol is None or self.error <= self.rtol

    def __str__(self) -> str:
        text = f"standard error {self.error:.1e} of the largest entry, from {self.n_samples} neurons"
        return text if self.rtol is None else f"{text}, where {self.rtol:.1e} was asked for"


def measure(source: TwoLayerHierarchy, u: Tensor, v: Tensor, rtol: float | None = None) -> Accuracy:
    """Measure the standard error of ``source.fourth`` on training points, for weights u and v of shape (Q, n)."""
    x = source.x_train
    step = -(-len(x) // PROBES)
    mean, error = source.estimate_fourth(x[::step].double(), None, u, v)
    largest = float(mean.abs().max())
    return Accuracy(float(error.max()) / largest if largest > 0 else 0.0, source.n_samples, rtol)


def draw_until(source: TwoLayerHierarchy, u: Tensor, v: Tensor, rtol: float, most: int) -> Accuracy:
    """Raise ``source.n_samples`` until the error is at most ``rtol``, or the number of neurons ``most``."""
    source.n_samples = min(FIRST, most)
    while True:
        found = measure(source, u, v, rtol)
        if found.reached or source.n_samples >= most:
            return found
        # Between 2 and 16 times as many: an error measured on few neurons says little about how it falls.
        factor = min(16.0, max(2.0, MARGIN * (found.error / rtol) ** 2))
        source.n_samples = min(most, 2 ** math.ceil(math.log2(source.n_samples * factor)))
