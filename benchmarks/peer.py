"""The peer, neural-tangents, in an environment of its own: reads requests and answers with seconds, one a line.

A request names layers, dtype and a file with the inputs; the answer has the best time of two jitted calls, compile time excluded,
and the first entries of the kernel, so that both sides are seen to compute the same.
"""

from __future__ import annotations

import json
import sys
import time

import jax
import numpy as np
from neural_tangents import stax

GAIN = 2**0.5


def layer(word: str):  # noqa: D103
    if word in ("conv", "conv2"):
        stride = 2 if word == "conv2" else 1
        return stax.Conv(1, (3, 3), strides=(stride, stride), padding="SAME", W_std=GAIN)
    if word in ("block", "block2"):
        stride = 2 if word == "block2" else 1
        main = stax.serial(
            stax.Conv(1, (3, 3), strides=(stride, stride), padding="SAME", W_std=GAIN),
            stax.Relu(),
            stax.Conv(1, (3, 3), padding="SAME", W_std=GAIN),
        )
        shortcut = stax.Conv(1, (1, 1), strides=(stride, stride), padding="SAME", W_std=GAIN)
        return stax.serial(stax.Relu(), stax.FanOut(2), stax.parallel(main, shortcut), stax.FanInSum())
    return {
        "relu": stax.Relu(),
        "erf": stax.Erf(),
        "gelu": stax.Gelu(approximate=False),
        "tanh": stax.ElementwiseNumerical(jax.numpy.tanh, deg=25),
        "pool": stax.AvgPool((2, 2), strides=(2, 2)),
        "gap": stax.GlobalAvgPool(),
        "flatten": stax.Flatten(),
        "dense": stax.Dense(1, W_std=GAIN),
    }[word]


def main() -> None:  # noqa: D103
    kernels = {}
    for line in sys.stdin:
        request = json.loads(line)
        jax.config.update("jax_enable_x64", request["dtype"] == "float64")
        arrays = np.load(request["file"])
        batches = [jax.numpy.asarray(arrays[name].astype(request["dtype"])) for name in arrays]
        if batches[0].ndim == 4:
            batches = [jax.numpy.transpose(x, (0, 2, 3, 1)) for x in batches]
        x1, x2 = (*batches, None)[:2]  # of one batch alone: its kernel with itself
        key = (request["name"], request["dtype"])
        if key not in kernels:
            _, _, kernel_fn = stax.serial(*(layer(word) for word in request["words"]))
            kernels[key] = jax.jit(lambda a, b, kernel_fn=kernel_fn: kernel_fn(a, b, "ntk"))
            kernels[key](x1, x2).block_until_ready()
        clock = time.process_time if request.get("cpu") else time.perf_counter
        seconds, begin = float("inf"), time.perf_counter()
        for number in range(5):
            if number >= 2 and time.perf_counter() - begin > 1:
                break
            start = clock()
            value = kernels[key](x1, x2).block_until_ready()
            seconds = min(seconds, clock() - start)
        print(json.dumps({"seconds": seconds, "corner": np.asarray(value)[:2, :2].astype(float).tolist()}), flush=True)


if __name__ == "__main__":
    main()
