"""Random linear maps that preserve inner products in expectation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["CountSketch", "Gaussian", "TensorSketch"]


@dataclass(frozen=True)
class Gaussian:
    """v -> W v with standard normal W, shape (size, input size)."""

    weights: Tensor

    @staticmethod
    def draw(inputs: int, size: int, like: Tensor, generator: torch.Generator) -> Gaussian:
        """Draw W."""
        return Gaussian(torch.randn(size, inputs, generator=generator, dtype=torch.float64).to(like))

    def __call__(self, v: Tensor) -> Tensor:
        """Return W v for v of shape (..., inputs)."""
        return v @ self.weights.T


@dataclass(frozen=True)
class CountSketch:
    """A count sketch: each coordinate, with a random sign, is added to one of ``size`` bins (Charikar et al. 2002).

    Attributes
    ----------
    places, signs
        Bin and sign of each coordinate, shape (inputs,).
    size
        Coordinates of the result.
    """

    places: Tensor
    signs: Tensor
    size: int

    @staticmethod
    def draw(inputs: int, size: int, like: Tensor, generator: torch.Generator) -> CountSketch:
        """Draw bins, as evenly filled as possible, and signs."""
        # Every bin gets the same number of coordinates; only which ones is random.
        places = (torch.randperm(inputs, generator=generator) % size).to(like.device)
        signs = (2 * torch.randint(2, (inputs,), generator=generator) - 1).to(like)
        return CountSketch(places, signs, size)

    def __call__(self, v: Tensor) -> Tensor:
        """Return the sketch of v of shape (..., inputs), shape (..., size)."""
        out = v.new_zeros(*v.shape[:-1], self.size)
        return out.index_add_(-1, self.places, v * self.signs)


@dataclass(frozen=True)
class TensorSketch:
    r"""A sketch of :math:`u \otimes v` without forming it: two count sketches, circularly convolved (Pham and Pagh 2013)."""

    first: CountSketch
    second: CountSketch

    @staticmethod
    def draw(inputs: tuple[int, int], size: int, like: Tensor, generator: torch.Generator) -> TensorSketch:
        """Draw both sketches."""
        # Independent hash functions, so that coordinates that collide in one rarely collide in the other.
        drawn = []
        for count in inputs:
            places = torch.randint(size, (count,), generator=generator).to(like.device)
            signs = (2 * torch.randint(2, (count,), generator=generator) - 1).to(like)
            drawn.append(CountSketch(places, signs, size))
        return TensorSketch(*drawn)

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        """Return the sketch of u of shape (..., inputs1) and v of shape (..., inputs2), shape (..., size)."""
        size = self.first.size
        product = torch.fft.rfft(self.first(u)) * torch.fft.rfft(self.second(v))
        result: Tensor = torch.fft.irfft(product, n=size)
        return result
