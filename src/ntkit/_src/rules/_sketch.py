"""Random linear maps that preserve inner products in expectation, and the features they are applied to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class CountSketch:
    """Each coordinate, with a random sign, is added to one of ``size`` bins (Charikar et al. 2002); both of shape (inputs,)."""

    places: Tensor
    signs: Tensor
    size: int

    @staticmethod
    def draw(inputs: int, size: int, like: Tensor, generator: torch.Generator, even: bool = True) -> CountSketch:
        """Draw bins and signs; if ``even``, all bins get the same number of coordinates, and only which ones is random."""
        if even:
            places = torch.randperm(inputs, generator=generator) % size
        else:
            places = torch.randint(size, (inputs,), generator=generator)
        signs = (2 * torch.randint(2, (inputs,), generator=generator) - 1).to(like)
        return CountSketch(places.to(like.device), signs, size)

    def __call__(self, v: Tensor) -> Tensor:
        """Return the sketch of v of shape (..., inputs), shape (..., size)."""
        out = v.new_zeros(*v.shape[:-1], self.size)
        return out.index_add_(-1, self.places, v * self.signs)


@dataclass(frozen=True)
class Features:
    """Random features of a node, shape (n, *positions, d): phi . phi' estimates K, psi . psi' Theta; None where that is zero."""

    phi: Tensor
    psi: Tensor | None

    def map(self, function: Callable[[Tensor], Tensor]) -> Features:
        """Apply a linear map to both."""
        return Features(function(self.phi), None if self.psi is None else function(self.psi))


@dataclass
class Draws:
    """The random maps of a program's features; each is drawn when it is first needed, and then kept."""

    width: int  # random neurons per activation
    sketch: int  # size of sketches of psi
    generator: torch.Generator
    _drawn: dict[tuple[int, str], object] = field(default_factory=dict)

    def neurons(self, node: int, v: Tensor) -> Tensor:
        """Return W v of an activation's neurons, W standard normal, shape (..., width)."""

        def draw() -> Tensor:
            return torch.randn(self.width, v.shape[-1], generator=self.generator, dtype=torch.float64).to(v)

        return v @ self._kept((node, "weights"), draw).T

    def product(self, node: int, name: str, u: Tensor, v: Tensor) -> Tensor:
        """Return a sketch of u (x) v, without forming it: two count sketches, circularly convolved (Pham and Pagh 2013)."""

        def draw() -> list[CountSketch]:  # independent: coordinates that collide in one rarely collide in the other
            return [CountSketch.draw(w.shape[-1], self.sketch, u, self.generator, even=False) for w in (u, v)]

        first, second = self._kept((node, name), draw)
        product: Tensor = torch.fft.irfft(torch.fft.rfft(first(u)) * torch.fft.rfft(second(v)), n=self.sketch)
        return product

    def compressed(self, node: int, name: str, v: Tensor, size: int) -> Tensor:
        """Return a sketch of v if v is much longer than ``size``, and v otherwise."""
        if v.shape[-1] <= 2 * size:
            return v
        return self._kept((node, name), lambda: CountSketch.draw(v.shape[-1], size, v, self.generator))(v)

    def _kept(self, key: tuple[int, str], draw: Callable[[], T]) -> T:
        if key not in self._drawn:
            self._drawn[key] = draw()
        return self._drawn[key]  # type: ignore[return-value]
