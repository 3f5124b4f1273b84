"""The peer, neural-tangents, on the same weights: reads requests and answers with seconds, one a line.

A request names a case, how many rows, an implementation and a file with inputs and weights; the answer has the time of a
jitted call, compile time excluded, and the first entries of the kernel. All in float32.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import jax
import jaxlib
import neural_tangents as nt
import numpy as np
from empirical_cases import CASES
from jax import numpy as jnp

# Channels last, as JAX likes it; the pads are PyTorch's, which "SAME" is not at stride 2.
MEMORY = 16 * 2**30  # what an implementation that forms everything may ask for before it counts as not possible
LAYOUT = ("NHWC", "HWIO", "NHWC")


def convolve(x, weight, bias, stride=1):  # noqa: D103
    pad = (weight.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(x, weight, (stride, stride), [(pad, pad)] * 2, dimension_numbers=LAYOUT) + bias


def apply(words, parameters, x):  # noqa: D103
    parameters = iter(parameters)
    for word, *sizes in words:
        if word == "dense":
            x = x @ next(parameters) + next(parameters)
        elif word == "conv":
            x = convolve(x, next(parameters), next(parameters))
        elif word == "block":
            h = jax.nn.relu(x)
            first, second, shortcut = ((next(parameters), next(parameters)) for _ in range(3))
            x = convolve(h, *shortcut, sizes[1]) + convolve(jax.nn.relu(convolve(h, *first, sizes[1])), *second)
        elif word == "gap":
            x = x.mean((1, 2))
        else:
            x = jax.nn.relu(x)
    return x


def kernel_of(words, implementation):  # noqa: D103
    kernel = nt.empirical_ntk_fn(
        lambda p, a: apply(words, p, a),
        trace_axes=(-1,),
        vmap_axes=0,
        implementation=nt.NtkImplementation[implementation],
    )
    return jax.jit(lambda a, p: kernel(a, None, p))


def main() -> None:  # noqa: D103
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    kernels = {}
    for line in sys.stdin:
        request = json.loads(line)
        arrays = np.load(request["file"])
        x = jnp.asarray(arrays["x"][: request["rows"]])
        if x.ndim == 4:
            x = jnp.transpose(x, (0, 2, 3, 1))
        weights = [arrays[f"w{i}"] for i in range(sum(key.startswith("w") for key in arrays))]
        order = {4: (2, 3, 1, 0), 2: (1, 0), 1: (0,)}
        parameters = [jnp.asarray(np.transpose(w, order[w.ndim])) for w in weights]
        key = (request["case"], request["implementation"])
        try:
            if key not in kernels:
                kernels[key] = kernel_of(CASES[request["case"]].words, request["implementation"])
                kernels[key](x, parameters).block_until_ready()
            clock = time.process_time if request["cpu time"] else time.perf_counter
            start = clock()
            value = kernels[key](x, parameters).block_until_ready()
            answer = {
                "seconds": clock() - start,
                "corner": np.asarray(value)[:2, :2].astype(float).tolist(),
            }
        except jaxlib.xla_extension.XlaRuntimeError as error:  # out of memory
            answer = {"seconds": None, "error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
