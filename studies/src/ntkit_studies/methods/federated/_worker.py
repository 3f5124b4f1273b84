"""What a worker of federated learning holds, and everything that ever leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from ntkit import empirical
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import Loss, check_batches, measuring, read_output_targets

from .._integrate import Outputs, outputs_of, transposed_product
from ._coordinates import Coordinate
from ._local_training import local_training

__all__ = ["Worker"]

_ROUNDING = {torch.float32: 3e-4, torch.float64: 1e-8}
_BLOCK_ENTRIES = 2**23  # derivatives held at a time


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
        parameter = module.get_parameter(name).detach()

        def of_row(values: Tensor, row: Tensor) -> Tensor:
            # A forward may write to its buffers, but not inside a transform.
            own = {key: buffer.clone() for key, buffer in module.named_buffers()} | {name: values}
            outputs: Tensor = functional_call(module, own, (row[None],))
            return outputs.flatten()

        with measuring(module), torch.no_grad():
            rows: Tensor = vmap(jacrev(of_row), (None, 0))(parameter, self.x).flatten(2)
        # Batching rules of vmap can be silently wrong, PReLU's for one: autograd checks a random combination.
        start = outputs_of(module, self.x)
        weights = torch.randn(start.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(start)
        expected = transposed_product(module, self.x, weights)[name].flatten()
        if bool((weights.flatten() @ rows.flatten(0, 1) - expected).norm() > _ROUNDING[rows.dtype] * rows.norm()):
            raise InputError(
                f"torch.func cannot differentiate the rows of {type(module).__name__} with respect to {name}."
            )
        return rows

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
        out = self.x.new_empty(len(self.x), len(coordinates))
        groups: dict[str, list[int]] = {}
        for number, one in enumerate(coordinates):
            groups.setdefault(one.parameter, []).append(number)
        for name, numbers in groups.items():
            chosen = [coordinates[number] for number in numbers]
            where = [one.output for one in chosen], [one.index for one in chosen]
            entries = module.get_parameter(name).numel() * (1 + max(where[0]))
            done = 0
            for part in self.x.split(max(1, _BLOCK_ENTRIES // entries)):
                rows = Worker(part, part).jacobian(module, name)
                out[done : done + len(part), numbers] = rows[:, *where].to(out)
                done += len(part)
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
