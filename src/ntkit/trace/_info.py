"""What is known of a node while its program is built."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Info"]


@dataclass(frozen=True)
class Info:
    """What is known of a node's value.

    Attributes
    ----------
    gaussian
        Whether its channels are Gaussian, so that an activation may follow.
    why_not
        What made them something else.
    sources
        The layers and activations whose own randomness it carries, not counting what passed through fresh weights
        since: two values are independent when they share none.
    affine
        Whether it is a trained affine weight times something, channel by channel (``"whole"``), has a part that is
        (``"part"``), or neither (``""``).
    """

    gaussian: bool
    why_not: str
    sources: frozenset[int]
    affine: str = ""
