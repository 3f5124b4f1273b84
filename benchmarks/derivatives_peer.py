"""The networks of ``derivatives_cases.py`` in neural-tangents: reads requests, answers each with seconds and a file."""

from __future__ import annotations

import json
import os
import sys
import time

if hasattr(os, "sched_setaffinity"):  # JAX starts a thread for each core that it may use
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])

import jax
import numpy as np
from derivatives_cases import CASES, GAINS, Case
from neural_tangents import stax


def derivative(case: Case):
    """Return the compiled derivative by x of the sum of G K(x, x')."""
    gains = {"W_std": GAINS["w_std"], "b_std": GAINS["b_std"]}
    images = len(case.shape) > 1
    layers = []
    for _ in range(case.depth):
        layers += [stax.Conv(1, (3, 3), padding="SAME", **gains) if images else stax.Dense(1, **gains), stax.Relu()]
    head = [stax.GlobalAvgPool() if case.average else stax.Flatten()] if images else []
    _, _, kernel_fn = stax.serial(*layers, *head, stax.Dense(1, **gains))

    def total(x, z, g):
        sides = [jax.numpy.moveaxis(value, 1, -1) if images else value for value in (x, z)]
        return (kernel_fn(*sides, "ntk") * g).sum()

    return jax.jit(jax.grad(total))


def main() -> None:  # noqa: D103
    jax.config.update("jax_enable_x64", True)
    compiled = {}
    for line in sys.stdin:
        request = json.loads(line)
        with np.load(request["file"]) as arrays:
            given = [jax.numpy.asarray(arrays[name]) for name in "xzg"]
        if request["name"] not in compiled:
            compiled[request["name"]] = derivative(CASES[request["name"]])
            jax.block_until_ready(compiled[request["name"]](*given))
        start = time.process_time()
        value = jax.block_until_ready(compiled[request["name"]](*given))
        seconds = time.process_time() - start
        np.savez(request["file"], derivative=value)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
