"""Self-attention without its projections: every token reads the values of all tokens, weighted by logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ._activation import Activation
from ._program import Keep, Keeps, Op, Values, Weights

Scaling = Literal["sqrt", "linear"]


@dataclass(frozen=True)
class LogitSamples:
    """``count`` samples of standard normals from which logits are computed, the same for every pair of inputs."""

    BLOCK: ClassVar[int] = 16  # samples drawn from one seed

    seed: int
    count: int
    start: int = 0  # blocks skipped from ``seed`` on, each of which has a seed of its own

    def draws(self, rows: int, columns: int, like: Tensor) -> Iterator[Tensor]:
        """Yield all samples in blocks, shape (samples of the block, rows, columns)."""
        for block in range(-(-self.count // self.BLOCK)):
            generator = torch.Generator().manual_seed((self.seed + self.start + block) % 2**63)
            size = min(self.BLOCK, self.count - block * self.BLOCK)
            # Drawn in float64 on the CPU, so that a seed gives the same samples everywhere.
            yield torch.randn(size, rows, columns, generator=generator, dtype=torch.float64).to(like)

    def groups(self, number: int) -> tuple[LogitSamples, ...]:
        """Split the samples into groups of equal size, of whole blocks if there are enough of them."""
        blocks = self.count // self.BLOCK // number
        # With too few blocks for whole ones, each group draws a part of its own block.
        size = blocks * self.BLOCK or max(1, self.count // number)
        return tuple(LogitSamples(self.seed, size, self.start + i * max(1, blocks)) for i in range(number))


@dataclass(frozen=True)
class Attention(Op):
    r"""Values averaged over the tokens: y_a = sum_b z(G)_ab v_b in each head, G the products of queries and keys.

    Its inputs are the queries, the keys and the values of all heads, concatenated; the position axes are the tokens.
    G = q k^T / sqrt(d) stays random (``"sqrt"``); G = q k^T / d becomes the covariance of queries and keys (``"linear"``).
    """

    heads: int  # of the finite network; they and their width d go to infinity together
    phi: Activation | None  # z, applied to every logit; None: softmax over the keys b
    scaling: Scaling
    tied: bool = False  # the keys are the queries; otherwise the covariance between them is zero
    gain: float = 1.0  # a factor of the logits
    # Added to the logits, (tokens, tokens), queries first; -inf hides a key, whose weight is zero after any mechanism.
    mask: Tensor | None = field(default=None, compare=False)
    samples: LogitSamples | None = None  # for softmax at sqrt: those from which the logits are computed
    on_data: bool = False  # queries and keys are linear layers of raw data, so all logits are functions of one draw

    @property
    def sampled(self) -> bool:
        """Whether its covariance is a mean over drawn logits."""
        return self.phi is None and self.scaling == "sqrt"

    @property
    def linear_in_logits(self) -> bool:
        """Whether the mechanism is the identity."""
        return self.phi is not None and self.phi.polynomial() == (0.0, 1.0)

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        everything = (Keep.ALL,) * len(keeps)
        if self.scaling == "linear":
            return None, None, everything
        same = all(keep is Keep.SAME for keep in keeps) and (self.on_data or not self.sampled)
        return keeps if same else everything, everything, everything

    def needs_own(self, ranks: tuple[int, ...]) -> tuple[Keeps | None, ...]:
        same, everything = (Keep.SAME,) * ranks[0], (Keep.ALL,) * ranks[0]
        if self.scaling == "linear":
            return everything if self.tied else None, None, None
        if self.sampled:
            return (None,) * 3 if self.on_data else (everything, everything, None)
        return (None,) * 3 if self.linear_in_logits else (same, same, None)

    def label(self) -> str:
        name = "softmax" if self.phi is None else str(self.phi)
        if self.scaling == "sqrt":
            drawn = f", {self.samples.count} samples" if self.samples is not None else ""
            return f"attention {name}{drawn}"
        if self.tied:
            return f"attention {name} at 1/d"
        # Products of independent queries and keys vanish relative to d.
        return "attention at 1/d, logits vanish: " + ("mean of tokens" if self.phi is None else f"{name} of zero")

    def hidden(self) -> Tensor | None:
        """Return which keys are hidden from which queries, shape (tokens, tokens); None if no key is hidden."""
        return None if self.mask is None else torch.isneginf(self.mask)

    def weights(self, logits: Tensor, hidden: Tensor | None = None) -> Tensor:
        """Apply the mechanism to logits (..., tokens, tokens), queries first; ``hidden`` says what the inputs hide besides."""
        mask = None if self.mask is None else self.mask.to(logits)
        if hidden is not None:
            own = torch.zeros_like(hidden, dtype=logits.dtype).masked_fill(hidden, -math.inf)
            mask = own if mask is None else own + mask
        if self.phi is None:
            return torch.softmax(logits if mask is None else logits + mask, -1)
        weights = self.phi(logits)
        return weights if mask is None else weights.masked_fill(torch.isneginf(mask), 0.0)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Average values of shape (n, *tokens, heads width) in every head."""
        tokens = inputs[0].shape[1:-1]
        q, k, v = (x.flatten(1, -2).unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in inputs[:3])
        hidden = inputs[3][:, None] > 0 if len(inputs) > 3 else None
        width = q.shape[-1]
        logits = q @ k.transpose(-2, -1) * (self.gain / (width if self.scaling == "linear" else math.sqrt(width)))
        value: Tensor = (self.weights(logits, hidden) @ v).transpose(1, 2).flatten(2).unflatten(1, tokens)
        return value


@dataclass(frozen=True)
class MaskedAttention(Attention):
    """Attention in which each input hides keys of its own, such as padding."""

    prefix: int = (
        0  # index in ``Program.prefixes`` of what is hidden: one, else zero, (n, 1 or tokens, tokens), queries first
    )

    def alike(self, other: Op) -> bool:
        return isinstance(other, MaskedAttention) and replace(other, prefix=self.prefix) == self
