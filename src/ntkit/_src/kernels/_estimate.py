"""Kernels with sampled attention: the mean over the samples and its standard error."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ntkit._src.common import check_generator, check_integer
from ntkit._src.program import Attention, LogitSamples, Program
from ntkit._src.rules import gram

_GROUPS = 32


class Estimate(NamedTuple):
    """A mean over independent draws and its standard error, both of the same shape."""

    mean: Tensor
    error: Tensor


def logit_samples(count: int | None, generator: torch.Generator | None) -> LogitSamples | None:
    """Return the samples that softmax attention draws; None if none are requested."""
    check_generator(generator)
    if count is None:
        return None
    count = check_integer("attention_samples", count, 2)
    return LogitSamples(int(torch.randint(2**62, (), generator=generator)), count)


def sampling_error(program: Program, x1: Tensor, x2: Tensor | None, ntk: bool) -> Tensor:
    """Return the standard error of a kernel whose attention is sampled, shape (n1, n2); zero where nothing is."""
    # The samples are split into groups of equal size, and each group yields a kernel. The standard error is the standard
    # deviation of these kernels divided by the square root of their number.
    drawn = [node.op.samples.count for node in program.nodes if isinstance(node.op, Attention) and node.op.samples]
    if not drawn:
        dtype = x1.dtype if x1.is_floating_point() else torch.float64
        return x1.new_zeros(len(x1), len(x1 if x2 is None else x2), dtype=dtype)
    number = min(_GROUPS, *drawn)
    kernels = []
    for group in range(number):
        nodes = tuple(
            replace(node, op=replace(node.op, samples=node.op.samples.groups(number)[group]))
            if isinstance(node.op, Attention) and node.op.samples
            else node
            for node in program.nodes
        )
        found = gram(replace(program, nodes=nodes), x1, x2, ntk=ntk, nngp=not ntk)
        kernels += [kernel for kernel in (found.ntk if ntk else found.nngp,) if kernel is not None]
    error: Tensor = torch.stack(kernels).std(0) / number**0.5
    return error
