"""The networks of the benchmark of empirical kernels, as words that both sides build from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A network and its inputs.

    Attributes
    ----------
    words
        Layers: ``("dense", width)``, ``("conv", width)``, ``("block", width, stride)``, ``("relu",)``, ``("gap",)``.
    shape
        Of one input, channels first.
    n
        Number of inputs; the kernel is n x n.
    tile
        Rows of the tile on which methods are timed that form the derivatives of all rows, which must fit in memory.
    target
        How many times faster than the tutorial's method the automatic one must be.
    """

    words: tuple[tuple[str | int, ...], ...]
    shape: tuple[int, ...]
    n: int
    tile: int
    target: float


CASES = {
    "MLP 4 x 2048, 10 outputs, n = 256": Case(
        (("dense", 2048), ("relu",)) * 4 + (("dense", 10),), (784,), 256, 4, 5.0
    ),
    "ResNet, 32 x 32, 10 outputs, n = 64": Case(
        (("conv", 16), ("block", 16, 1), ("block", 32, 2), ("block", 64, 2), ("relu",), ("gap",), ("dense", 10)),
        (3, 32, 32), 64, 64, 2.0,
    ),
}  # fmt: skip
