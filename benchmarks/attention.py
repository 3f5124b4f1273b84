"""A transformer block against neural-tangents, in one run on the same inputs: seconds, their ratio, and how far they agree.

The block is pre-norm: h + attention(norm(h)), then h + mlp(norm(h)), read by the mean of the tokens. Attention is the softmax at
1/d with tied queries and keys, and the identity at 1/sqrt(d); neural-tangents has no other at 1/sqrt(d), so ReLU is timed alone.

Run ``python benchmarks/attention.py --peer PYTHON`` with the interpreter that ``make peer`` installs; without it ours alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ntkit
from ntkit.layers import SelfAttention

TOKENS, CHANNELS, ROWS = 16, 32, 24
MECHANISMS = {
    "softmax at 1/d": {"mechanism": "softmax", "scaling": "linear", "tied": True},
    "identity at 1/sqrt(d)": {"mechanism": "identity"},
    "relu at 1/sqrt(d)": {"mechanism": "relu"},
}
PEER = """
import json, sys, time
import jax, numpy as np
from neural_tangents import stax
jax.config.update("jax_enable_x64", True)
request = json.loads(sys.stdin.readline())
x = np.load(request["file"])["x"]
linear = request["mechanism"] == "softmax at 1/d"
attention = stax.GlobalSelfAttention(
    1, n_chan_key=1, n_chan_val=1, n_heads=1, linear_scaling=linear, W_key_std=1.0, W_value_std=1.0, W_query_std=1.0,
    W_out_std=1.0, b_std=None,
    attention_mechanism=stax.AttentionMechanism.SOFTMAX if linear else stax.AttentionMechanism.IDENTITY,
)
dense = lambda: stax.Dense(1, W_std=1.0)
residual = lambda *layers: stax.serial(stax.FanOut(2), stax.parallel(stax.serial(*layers), stax.Identity()), stax.FanInSum())
_, _, kernel = stax.serial(
    dense(),
    residual(stax.LayerNorm(), attention),
    residual(stax.LayerNorm(), dense(), stax.Relu(), dense()),
    stax.GlobalAvgPool(),
    dense(),
)
compute = jax.jit(lambda a: kernel(a, None, "ntk"))
compute(x).block_until_ready()
best = float("inf")
for _ in range(3):
    start = time.perf_counter()
    value = compute(x).block_until_ready()
    best = min(best, time.perf_counter() - start)
print(json.dumps({"seconds": best, "kernel": np.asarray(value).tolist()}))
"""


class Residual(nn.Module):
    """x + layers(norm(x))."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(8, elementwise_affine=False, eps=1e-12), *layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return x + self.layers(x)


class Block(nn.Module):
    """One transformer block on embedded tokens."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.embed = nn.Linear(CHANNELS, 8, bias=False)
        self.attend = Residual(SelfAttention(8, 4, **options, bias=False))  # type: ignore[arg-type]
        self.mlp = Residual(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.Linear(8, 8, bias=False))
        self.head = nn.Linear(8, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # noqa: D102
        return self.head(self.mlp(self.attend(self.embed(x))).mean(1))


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="an interpreter with neural-tangents")
    peer = parser.parse_args().peer
    x = torch.randn(ROWS, TOKENS, CHANNELS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for name, options in MECHANISMS.items():
        limit = ntkit.infinite_width(Block(**options), w_std=1.0)
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            value = limit.ntk(x)
            best = min(best, time.perf_counter() - start)
        line = f"{name}: {ROWS} x {ROWS} inputs of {TOKENS} tokens, ntkit {best:.3f} s"
        if peer is not None and not name.startswith("relu"):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "x.npz"
                np.savez(file, x=x.numpy())
                request = json.dumps({"file": str(file), "mechanism": name})
                run = subprocess.run([peer, "-c", PEER], input=request, capture_output=True, text=True, check=True)
            answer = json.loads(run.stdout.splitlines()[-1])
            error = np.abs(np.array(answer["kernel"]) - value.numpy()).max() / value.abs().max().item()
            line += (
                f", neural-tangents {answer['seconds']:.3f} s, ratio {answer['seconds'] / best:.1f}, apart {error:.1e}"
            )
        print(line, flush=True)


if __name__ == "__main__":
    main()
