"""The networks of ``layers_cases.py`` in neural-tangents: reads requests, answers each with seconds and a file of kernels."""

from __future__ import annotations

import json
import sys
import time

import jax
import numpy as np
from layers_cases import B_STD, FEATURES, POSITION_GAIN, SPEED, VALUES, W_STD, Case
from neural_tangents import stax

GAINS = {"W_std": W_STD, "b_std": B_STD}


def attend(mechanism: str, scaling: str, *flags: str):  # noqa: D103
    positions = {"pos_emb_type": "SUM", "W_pos_emb_std": POSITION_GAIN, "val_pos_emb": "values" in flags}
    return stax.GlobalSelfAttention(
        1,
        n_chan_key=1,
        n_chan_val=1,
        n_heads=1,
        linear_scaling=scaling == "linear",
        W_key_std=W_STD,
        W_query_std=W_STD,
        W_value_std=W_STD,
        W_out_std=W_STD,
        b_std=None if "no bias" in flags else B_STD,
        attention_mechanism=mechanism.upper(),
        **(positions if "positions" in flags else {}),
    )


def residual(words):  # noqa: D103
    branches = stax.parallel(stax.serial(*(layer(word, 1) for word in words)), stax.Identity())
    return stax.serial(stax.FanOut(2), branches, stax.FanInSum())


def gate():  # noqa: D103
    relu = stax.serial(stax.Dense(1, **GAINS), stax.Relu())
    return stax.serial(stax.FanOut(2), stax.parallel(relu, stax.Dense(1, **GAINS)), stax.FanInProd())


def layer(word, axes: int):
    """Build the layer of a word for values with so many position axes."""
    name, *options = word
    if name in ("aggregate", "map"):
        return stax.Aggregate(aggregate_axis=1, batch_axis=0, channel_axis=2)
    if name == "resize":
        mode, size = options
        method = "nearest" if mode == "nearest" else "linear"
        return stax.ImageResize((-1, *(size,) * axes, -1), method, antialias=False)
    if name == "transpose":
        return stax.ConvTranspose(1, (options[0],) * axes, (options[1],) * axes, padding="VALID", **GAINS)
    build = {
        "dense": lambda: stax.Dense(1, **GAINS),
        "relu": stax.Relu,
        "norm": stax.LayerNorm,
        "conv": lambda: stax.Conv(1, (3,) * axes, padding="SAME", **GAINS),
        "strided": lambda: stax.Conv(1, (3,) * axes, strides=(2,) * axes, padding="SAME", **GAINS),
        "pool": lambda: stax.AvgPool((2,) * axes, strides=(2,) * axes),
        "mean": stax.GlobalAvgPool,
        "flatten": stax.Flatten,
        "gate": gate,
        "attend": lambda: attend(*options),
        "residual": lambda: residual(*options),
        "token": lambda: stax.Index(stax.Slice[:, options[0], :]),
    }
    return build[name]()


def kernel(case: Case, matrix: np.ndarray | None):
    """Return a compiled function of two batches, as torch has them, and a list of kernels in the order of ``case.sides``."""
    tokens = case.words[0][0] in ("dense", "attend", "aggregate")
    axes = len(case.shape) - 1
    _, _, kernel_fn = stax.serial(*(layer(word, axes) for word in case.words))
    graph = any(word[0] == "aggregate" for word in case.words)

    def sides(*batches):
        # Of neural-tangents' pattern the first axis is the sender's, of a matrix that multiplies from the left the last.
        if graph:
            patterns = tuple(x[..., FEATURES:].swapaxes(1, 2) for x in batches)
            return [x[..., :FEATURES] for x in batches], {"pattern": patterns}
        if matrix is not None:
            return batches, {"pattern": tuple(np.broadcast_to(matrix.T, (len(x), *matrix.shape)) for x in batches)}
        return (batches if tokens else [np.moveaxis(x, 1, -1) for x in batches]), {}

    def compute(x1, x2):
        inputs, options = sides(x1, x2)
        if not case.positions:
            found = kernel_fn(*inputs, case.sides, **options)
            return [getattr(found, side) for side in case.sides]
        found = kernel_fn(*inputs, None, diagonal_spatial=False)
        if found.is_reversed:
            found = found.reverse()
        values = [getattr(found, side) for side in case.sides]
        # (n1, n2, H, H', W, W') to (n1, n2, H, W, H', W')
        order = (0, 1, *range(2, 2 + 2 * axes, 2), *range(3, 3 + 2 * axes, 2))
        return [value.transpose(order) for value in values]

    return jax.jit(compute)


def main() -> None:  # noqa: D103
    jax.config.update("jax_enable_x64", True)
    compiled = {}
    for line in sys.stdin:
        request = json.loads(line)
        arrays = np.load(request["file"])
        x1, x2 = (jax.numpy.asarray(arrays[name]) for name in ("x1", "x2"))
        if request["name"] not in compiled:
            case = {**VALUES, **SPEED}[request["name"]]
            compiled[request["name"]] = kernel(case, arrays.get("matrix"))
            jax.block_until_ready(compiled[request["name"]](x1, x2))
        now = getattr(time, request["clock"])
        seconds = []
        for _ in range(request["repeats"]):
            start = now()
            values = jax.block_until_ready(compiled[request["name"]](x1, x2))
            seconds.append(now() - start)
        np.savez(request["answer"], *values)
        print(json.dumps({"seconds": min(seconds)}), flush=True)


if __name__ == "__main__":
    main()
