"""The networks that engines and their peer are timed on: ours as torch modules, the peer's as a list of words.

The words name layers, so that the peer's environment needs none of ntkit: ``conv`` (3x3, same), ``conv2`` (3x3, stride 2),
``relu`` (or ``erf``, ``gelu``, ``silu``, ``elu``, ``tanh``), ``pool`` (2x2 average), ``gap``, ``flatten``, ``dense``, and
``block``/``block2``, a pre-activation residual block of stride 1 or 2.
All weights have gain sqrt(2), biases none.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CASES", "Case"]


@dataclass(frozen=True)
class Case:
    """One network and how much of its kernel is computed.

    Attributes
    ----------
    words
        Its layers.
    shape
        The shape of an input: channels, height, width; or features.
    rows, columns
        How many inputs on each side for the native engine.
    peer_rows, peer_columns
        How many for the engines that are slower; times are compared for one entry.
    gram
        Whether the kernel is that of one batch with itself, which is symmetric; otherwise of two batches.
    """

    words: tuple[str, ...]
    shape: tuple[int, ...]
    rows: int
    columns: int
    peer_rows: int
    peer_columns: int
    gram: bool = False


_IMAGE = (3, 32, 32)

_DENSE = ("dense", "relu") * 3 + ("dense",)


def _convs(depth: int) -> tuple[str, ...]:
    return ("conv", "relu") * depth


CASES = {
    "conv 3, average": Case((*_convs(3), "gap", "dense"), _IMAGE, 32, 16, 2, 2),
    "conv 20, average": Case((*_convs(20), "gap", "dense"), _IMAGE, 16, 16, 1, 2),
    "conv 3, flatten": Case((*_convs(3), "flatten", "dense"), _IMAGE, 800, 800, 20, 20),
    "conv 20, flatten": Case((*_convs(20), "flatten", "dense"), _IMAGE, 192, 192, 10, 10),
    "conv 3, flatten, Gram": Case((*_convs(3), "flatten", "dense"), _IMAGE, 800, 800, 20, 20, gram=True),
    "myrtle 5": Case(
        (*_convs(2), "pool", *_convs(1), "pool", *_convs(1), "pool", "gap", "dense"),
        _IMAGE, 16, 32, 2, 2,
    ),
    "myrtle 10": Case(
        (*_convs(3), "pool", *_convs(3), "pool", *_convs(3), "pool", "gap", "dense"),
        _IMAGE, 16, 32, 2, 2,
    ),
    # 33 pixels: only with an odd side does the peer pad a strided convolution alike at both ends.
    "residual, strided": Case(
        ("conv", "block", "block2", "block2", "relu", "gap", "dense"),
        (3, 33, 33), 48, 48, 2, 2,
    ),
    "dense 3": Case(_DENSE, (784,), 5000, 5000, 5000, 5000),
    "dense 3, Gram": Case(_DENSE, (784,), 5000, 5000, 5000, 5000, gram=True),
}  # fmt: skip
