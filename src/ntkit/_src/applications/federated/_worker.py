"""What a worker of federated learning holds, and everything that ever leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit._src.common import Loss, block_rows, check_batches, measuring, read_output_targets, row_blocks
from ntkit._src.kernels import empirical
from ntkit._src.kernels.finite_network import Network, as_inputs, jacobian_rows
from ntkit.errors import InputError, InputTypeError

from .._integrate import Outputs, outputs_of, transposed_product
from ._coordinates import Coordinate
from ._local_training import local_training

__all__ = ["Worker"]


@dataclass(frozen=True, eq=False)
class Worker:
    """The data of one worker. Its methods run where the data are; only what they return leaves the worker.

    Attributes
    ----------
    x
        Inputs, shape (n, ...).
    y
        Targets, one row per input: in the shape of the outputs, or classes for cross-entropy.
    """

    x: Tensor
    y: Tensor

    def __post_init__(self) -> None:
        if not isinstance(self.x, Tensor) or not isinstance(self.y, Tensor):
            raise InputTypeError(
                f"a worker holds two tensors. Got {type(self.x).__name__} and {type(self.y).__name__}."
            )
        if not len(self.x):
            raise InputError("a worker must have at least one input. Got none: leave it out.")
        check_batches(self.x, None)
        if len(self.y) != len(self.x):
            raise InputError(f"a worker must have one target for each input. Got {len(self.y)} for {len(self.x)}.")

    def __len__(self) -> int:
        return len(self.x)

    def outputs(self, module: nn.Module) -> Tensor:
        """Return the outputs, shape (n, ...)."""
        return outputs_of(module, self.x)

    def targets(self, module: nn.Module, loss: Loss) -> Tensor:
        """Return the targets as the loss takes them, classes as one-hot rows: labels leave the worker."""
        return read_output_targets(loss, self.y, outputs_of(module, self.x))

    def loss(self, module: nn.Module, loss: Loss) -> float:
        """Return the loss, summed over the worker's points."""
        found = outputs_of(module, self.x)
        return float(loss.value(found, read_output_targets(loss, self.y, found)))

    def jacobian(self, module: nn.Module, name: str) -> Tensor:
        """Return the derivatives of all outputs with respect to one parameter, shape (n, k, entries)."""
        network = Network(module, "full")
        k = outputs_of(module, self.x[:1]).numel()
        with measuring(module):
            rows = jacobian_rows(network, [name], as_inputs(self.x), slice(0, k))[name]
        return rows.detach().reshape(len(self.x), k, -1)

    def sketch(self, module: nn.Module, size: int, seed: int) -> Tensor:
        """Return random projections of the derivatives, shape (n, k, size), whose inner products estimate the kernel's.

        The directions depend only on the seed, so all workers use the same ones.
        """
        total = torch.zeros(1)
        for number, (name, parameter) in enumerate(_trained(module)):
            generator = torch.Generator().manual_seed(seed + 7919 * number)
            directions = torch.randn(parameter.numel(), size, generator=generator, dtype=parameter.dtype) / size**0.5
            total = total + self.jacobian(module, name) @ directions.to(parameter.device)
        return total

    def gram(self, module: nn.Module, other: Worker | None, outputs: Outputs) -> Tensor:
        """Return the kernel with another worker's inputs, which that worker must disclose to this one; None: with its own."""
        kernel = empirical(module, output="full" if outputs == "coupled" else "trace").ntk
        return kernel(self.x, None if other is None else other.x)

    def transposed_product(self, module: nn.Module, weights: Tensor) -> dict[str, Tensor]:
        """Return Z weights by parameter, for weights shaped like the outputs: as many numbers as there are parameters."""
        return transposed_product(module, self.x, weights)

    def trained(
        self, module: nn.Module, loss: Loss, learning_rate: float, epochs: int, batch_size: int, seed: int
    ) -> dict[str, Tensor]:
        """Return the weights and buffers after training on the worker's own data."""
        return local_training(module, self.x, self.y, loss, learning_rate, epochs, batch_size, seed)

    def tangent_features(self, module: nn.Module, coordinates: Sequence[Coordinate]) -> Tensor:
        """Return the named derivatives, shape (n, m); they do not leave the worker."""
        network, out = Network(module, "full"), self.x.new_empty(len(self.x), len(coordinates))
        groups: dict[tuple[str, int], list[int]] = {}
        for number, one in enumerate(coordinates):
            groups.setdefault((one.parameter, one.output), []).append(number)
        sizes = {name: parameter.numel() for name, parameter in _trained(module)}
        for (name, output), numbers in groups.items():
            entries = torch.tensor([coordinates[number].index for number in numbers], device=self.x.device)
            for rows in row_blocks(len(self.x), block_rows(sizes[name], self.x.element_size())):
                with measuring(module):
                    part = jacobian_rows(network, [name], as_inputs(self.x[rows]), slice(output, output + 1))[name]
                out[rows, numbers] = part.detach().reshape(len(part), -1)[:, entries].to(out)
        return out

    def feature_sums(
        self, module: nn.Module, coordinates: Sequence[Coordinate], loss: Loss
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return sums over the points in float64: features (m,), their products (m, m), with targets (m, k), targets (k,)."""
        features = self.tangent_features(module, coordinates).double()
        targets = self.targets(module, loss).flatten(1).double()
        return features.sum(0), features.T @ features, features.T @ targets, targets.sum(0)


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
