"""Networks with attention, resizing, transposed convolutions and maps of positions, as words that both sides build from.

Words, each with its options: ``dense``, ``relu``, ``norm`` (LayerNorm without parameters), ``conv`` (3x3 or 3, same), ``strided``
(3x3 of stride 2, padded on the right), ``attend`` (mechanism, "sqrt" or "linear", and flags: "no bias", "positions", "values"),
``residual`` (words: x + layers(x)), ``gate`` (relu(dense) times dense), ``resize`` (mode, size), ``pool`` (2x2 average),
``transpose`` (kernel, stride), ``aggregate`` (multiply by the adjacency that the input carries), ``map`` (multiply by a constant
matrix), ``token`` (index), ``mean`` (over positions), ``flatten``. All weights have one gain and all biases another; attention at
1/d is tied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["B_STD", "FEATURES", "POSITION_GAIN", "SPEED", "VALUES", "W_STD", "Case"]

W_STD, B_STD = 1.1, 0.2
POSITION_GAIN = 0.6
FEATURES = 16  # of a node, before its row of the adjacency

Words = tuple[tuple[object, ...], ...]


@dataclass(frozen=True)
class Case:
    """One network and its inputs.

    Attributes
    ----------
    words
        Its layers.
    shape
        Of one input as torch has it: (tokens, channels), (channels, height, width), (channels, length) or (features,).
    positions
        Whether the output keeps its positions and the kernel is compared at every pair of them.
    rows
        Inputs on each side.
    sides
        Names of the kernels that are compared.
    """

    words: Words
    shape: tuple[int, ...]
    positions: bool = False
    rows: int = 3
    sides: tuple[str, ...] = field(default=("nngp", "ntk"))


DENSE, RELU, CONV, FLATTEN, MEAN = ("dense",), ("relu",), ("conv",), ("flatten",), ("mean",)
TOKENS, IMAGE, GRAPH = (5, 6), (2, 6, 6), (5, FEATURES + 5)


def _attention(*options: object, read: Words = (FLATTEN, DENSE)) -> Case:
    return Case((DENSE, ("attend", *options), RELU, *read), TOKENS)


def _block(mechanism: str, scaling: str) -> Words:
    attend = ("residual", (("norm",), ("attend", mechanism, scaling)))
    return (attend, ("residual", (("norm",), DENSE, RELU, DENSE)))


def _image(*words: tuple[object, ...], shape: tuple[int, ...] = IMAGE, read: Words = (FLATTEN, DENSE)) -> Case:
    return Case((CONV, RELU, *words, RELU, *read), shape)


VALUES = {
    "identity at 1/sqrt(d)": _attention("identity", "sqrt"),
    "identity at 1/sqrt(d), no bias": _attention("identity", "sqrt", "no bias", read=(MEAN, DENSE)),
    "identity at 1/sqrt(d), positions": _attention("identity", "sqrt", "positions"),
    "identity at 1/sqrt(d), positions in values": _attention("identity", "sqrt", "positions", "values"),
    "identity at 1/sqrt(d), on the data": Case((("attend", "identity", "sqrt"), MEAN, DENSE), TOKENS),
    **{
        f"{mechanism} at 1/d{comma}{', '.join(flags)}": _attention(mechanism, "linear", *flags, read=read)
        for mechanism in ("softmax", "relu", "abs", "identity")
        for comma, flags, read in (
            ("", (), (FLATTEN, DENSE)),
            (", ", ("no bias",), (MEAN, DENSE)),
            (", ", ("positions",), (MEAN, DENSE)),
            (", ", ("positions", "values", "no bias"), (FLATTEN, DENSE)),
        )
    },
    "softmax at 1/d after convolutions": _image(CONV, RELU, ("attend", "softmax", "linear"), shape=(2, 4, 4)),
    "relu at 1/d after convolutions": _image(CONV, RELU, ("attend", "relu", "linear"), shape=(2, 4, 4)),
    "identity at 1/sqrt(d) after convolutions": _image(
        CONV, RELU, ("attend", "identity", "sqrt"), shape=(2, 4, 4), read=(MEAN, DENSE)
    ),
    "pre-norm block, softmax at 1/d": Case((DENSE, *_block("softmax", "linear"), MEAN, DENSE), TOKENS),
    "pre-norm block, identity at 1/sqrt(d)": Case((DENSE, *_block("identity", "sqrt"), MEAN, DENSE), TOKENS),
    "two blocks read at one token, softmax at 1/d": Case(
        (DENSE, *_block("softmax", "linear"), *_block("softmax", "linear"), ("norm",), ("token", 0), DENSE), TOKENS
    ),
    "two blocks read at one token, identity at 1/sqrt(d)": Case(
        (DENSE, *_block("identity", "sqrt"), *_block("identity", "sqrt"), ("norm",), ("token", 0), DENSE), TOKENS
    ),
    "two blocks read at one token, relu at 1/d": Case(
        (DENSE, *_block("relu", "linear"), *_block("relu", "linear"), ("norm",), ("token", 2), DENSE), TOKENS
    ),
    "nearest 6 to 12": _image(("resize", "nearest", 12), CONV),
    "nearest 5 to 8": _image(("resize", "nearest", 8), CONV, shape=(2, 5, 5)),
    "nearest 7 to 3": _image(("resize", "nearest", 3), CONV, shape=(2, 7, 7), read=(MEAN, DENSE)),
    "bilinear 6 to 12": _image(("resize", "bilinear", 12), CONV, read=(MEAN, DENSE)),
    "bilinear 5 to 7": _image(("resize", "bilinear", 7), CONV, shape=(2, 5, 5)),
    "bilinear 5 to 9, mean": _image(("resize", "bilinear", 9), CONV, shape=(2, 5, 5), read=(MEAN, DENSE)),
    "bilinear 7 to 4": _image(("resize", "bilinear", 4), CONV, shape=(2, 7, 7)),
    "bilinear 9 to 5, mean": _image(("resize", "bilinear", 5), CONV, shape=(2, 9, 9), read=(MEAN, DENSE)),
    "linear 6 to 11": _image(("resize", "linear", 11), CONV, shape=(2, 6)),
    "nearest 1d 7 to 10": _image(("resize", "nearest", 10), CONV, shape=(2, 7)),
    **{
        f"transposed {kernel}/{stride}{', mean' if mean else ''}": _image(
            ("transpose", kernel, stride), read=(MEAN, DENSE) if mean else (FLATTEN, DENSE)
        )
        for kernel, stride in ((2, 2), (3, 2), (4, 2), (3, 1))
        for mean in (False, True)
    },
    "transposed 1d 5/3": _image(("transpose", 5, 3), shape=(2, 6)),
    "transposed 1d 5/3, mean": _image(("transpose", 5, 3), shape=(2, 6), read=(MEAN, DENSE)),
    "constant map": Case((DENSE, RELU, ("map",), DENSE, RELU, FLATTEN, DENSE), TOKENS),
    "graph": Case((("aggregate",), DENSE, RELU, ("aggregate",), DENSE, RELU, MEAN, DENSE), GRAPH),
    "graph, flatten": Case((("aggregate",), DENSE, RELU, ("aggregate",), DENSE, RELU, FLATTEN, DENSE), GRAPH),
    "product": Case((DENSE, RELU, ("gate",), DENSE, RELU, DENSE), (7,)),
    "image to image, nearest": Case(
        (("strided",), RELU, CONV, RELU, ("resize", "nearest", 6), CONV, RELU, CONV), IMAGE, positions=True
    ),
    "image to image, bilinear": Case(
        (("strided",), RELU, CONV, RELU, ("resize", "bilinear", 5), CONV, RELU, CONV), IMAGE, positions=True
    ),
    "image to image, transposed": Case((CONV, ("pool",), RELU, ("transpose", 2, 2), RELU, CONV), IMAGE, positions=True),
    "image to image, attention": Case(
        (CONV, RELU, ("attend", "softmax", "linear"), RELU, CONV), (2, 4, 4), positions=True
    ),
    "sequence to sequence, block": Case((DENSE, *_block("softmax", "linear"), DENSE), TOKENS, positions=True),
}
"""Networks whose values are compared."""

_LEVEL = (("pool",), CONV, RELU)


def _up(size: int) -> Words:
    return (("resize", "nearest", size), CONV, RELU)


SPEED = {
    "transformer block, softmax at 1/d, 16 tokens": Case(
        (DENSE, *_block("softmax", "linear"), MEAN, DENSE), (16, 32), rows=24, sides=("ntk",)
    ),
    "transformer block, identity at 1/sqrt(d), 16 tokens": Case(
        (DENSE, *_block("identity", "sqrt"), MEAN, DENSE), (16, 32), rows=24, sides=("ntk",)
    ),
    "encoder-decoder, two levels, 16x16x3": Case(
        (CONV, RELU, *_LEVEL, *_LEVEL, *_up(8), *_up(16), FLATTEN, DENSE),
        (3, 16, 16), rows=6, sides=("ntk",),
    ),
    "graph network, two aggregations, 20 nodes": Case(
        (("aggregate",), DENSE, RELU, ("aggregate",), DENSE, RELU, MEAN, DENSE), (20, FEATURES + 20), rows=20, sides=("ntk",)
    ),
}  # fmt: skip
"""Networks whose times are compared."""
