"""What is known about a node while its program is built."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Info"]


@dataclass(frozen=True)
class Info:
    """What is known about a node's value.

    Attributes
    ----------
    gaussian
        Whether its channels are Gaussian, so that an activation may follow.
    why_not
        Why they are not Gaussian.
    sources
        The layers and activations whose randomness it carries, not counting what has since passed through fresh weights:
        two values are independent if they share none.
    affine
        Whether a trained affine weight multiplies it: one weight per channel (``"whole"``), one per channel and position
        (``"positions"``), weights that multiply only a part of it or were averaged over (``"part"``), or none (``""``).
    """

    gaussian: bool
    why_not: str
    sources: frozenset[int]
    affine: str = ""
