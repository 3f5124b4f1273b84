"""Sparse random projections of a network's derivatives, using only permutations and sums, on any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit._src.kernels.finite_network import Batch, Network, as_inputs, jacobian_rows

_COPIES = 2


@dataclass(frozen=True, eq=False)
class Sketch:
    r"""A random linear map to ``dim`` numbers that preserves inner products on average: a sparse Johnson-Lindenstrauss transform.

    Each coordinate is added to one bucket per copy with a random sign: the coordinates are permuted and arranged in rows of
    ``dim``, whose columns are summed. All buckets hold equally many, and the variance of an inner product is at most
    :math:`2 |a|^2 |b|^2 / \mathrm{dim}` (Kane and Nelson 2014).
    """

    dim: int
    places: Tensor  # permutations, shape (copies, length), length a multiple of ``dim``
    signs: Tensor  # 1 or -1 over sqrt(copies), of the same shape

    @classmethod
    def draw(cls, module: nn.Module, dim: int, generator: torch.Generator) -> Sketch:
        """Draw a sketch of derivatives with respect to the trained parameters of a module."""
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        size, device = sum(parameter.numel() for parameter in trained), trained[0].device
        length = -(-size // dim) * dim
        source = generator.device
        places = torch.stack([torch.randperm(length, generator=generator, device=source) for _ in range(_COPIES)])
        signs = torch.randint(2, (_COPIES, length), generator=generator, device=source) * 2 - 1
        return cls(dim, places.to(device), (signs * _COPIES**-0.5).to(device, trained[0].dtype))

    def __call__(self, rows: Tensor) -> Tensor:
        """Project rows of derivatives, shape (b, size), to shape (b, dim), float64."""
        padded = torch.nn.functional.pad(rows, (0, self.places.shape[1] - rows.shape[1]))
        total = torch.zeros(len(rows), self.dim, dtype=torch.float64, device=rows.device)
        for places, signs in zip(self.places, self.signs, strict=True):
            total += (padded[:, places] * signs).view(len(rows), -1, self.dim).sum(1)
        return total


def sketched_derivatives(module: nn.Module, x: Batch, sketch: Sketch, byte_budget: int) -> Tensor:
    """Project the derivatives of every output of every input, shape (n s, dim), row i s + o for input i, output o."""
    network, inputs = Network(module, "full"), as_inputs(x)
    names = list(network.trained)
    with torch.no_grad():
        outputs = network(inputs[:1]).shape[1]
    size = sketch.places.shape[1] * next(module.parameters()).element_size()
    rows = max(1, byte_budget // (6 * outputs * size))  # derivatives, their concatenation and its permutation
    found = []
    for start in range(0, len(inputs), rows):
        derivatives = jacobian_rows(network, names, inputs[start : start + rows], slice(None))
        found.append(sketch(torch.cat([value.flatten(2) for value in derivatives.values()], 2).flatten(0, 1)))
    return torch.cat(found)
