"""The limit of a network whose input is random with a known covariance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ntkit._src import program as ops
from ntkit._src.common import check_choice, check_finite, check_input_size, check_result
from ntkit._src.rules import prior_positions
from ntkit.errors import InputError, InputTypeError

from ._infinite_width_kernel import check_differentiable
from ._positions import Positions, output_positions

_ROUNDING = 1e-10


@dataclass(frozen=True)
class PriorKernel:
    """One of the two kernels of a limit whose input has a prior: ``limit.with_prior(...).ntk`` or ``.nngp``."""

    program: ops.Program
    which: Literal["ntk", "nngp"]
    like: Tensor

    def positions(self, at: Positions | None = None) -> Tensor:
        r"""Return the kernel between positions of the output, shape (\*out, \*out), or (m, m) for m positions ``at``.

        See Also
        --------
        ntkit.results.InfiniteWidth : the same between outputs of given inputs.
        """
        asked = output_positions(self.program, at)
        ntk = self.which == "ntk"
        if ntk:
            check_differentiable(self.program)
        asked.check_memory(1, ntk, self.like)
        value = asked.read(prior_positions(asked.program, ntk, self.like))
        check_result(value)
        return value


@dataclass(frozen=True)
class PriorLimit:
    """The limit of a network that reads one random input, the same for all networks; see ``limit.with_prior``."""

    program: ops.Program
    like: Tensor

    @property
    def ntk(self) -> PriorKernel:
        """The neural tangent kernel."""
        return PriorKernel(self.program, "ntk", self.like)

    @property
    def nngp(self) -> PriorKernel:
        """The covariance of the outputs at initialisation."""
        return PriorKernel(self.program, "nngp", self.like)


def prior_of(
    covariance: Tensor | Literal["stationary"],
    input_shape: Sequence[int] | None,
    channels: Sequence[tuple[int, ...]],
    same: float | Tensor,
    other: float | Tensor,
) -> tuple[ops.Prior, tuple[int, ...], Tensor]:
    """Check a prior; return it, its input shape (one of ``channels`` if not given), and a tensor of its dtype and device."""
    if isinstance(covariance, str):
        check_choice("covariance", covariance, ["stationary"], ", or a tensor")
        if input_shape is None:
            raise InputError(
                'with_prior("stationary") must know the size of the input. Write '
                'limit.with_prior("stationary", input_shape=(1, 32, 32)).'
            )
        numbers = [float(torch.as_tensor(value).detach()) for value in (same, other)]
        if not (all(map(math.isfinite, numbers)) and numbers[0] > 0 and abs(numbers[1]) <= numbers[0]):
            raise InputError(
                f"same must be positive and finite, and other between -same and same. Got same={numbers[0]:g} and "
                f"other={numbers[1]:g}."
            )
        like = next((v for v in (same, other) if isinstance(v, Tensor)), torch.empty(0, dtype=torch.float64))
        return ops.StationaryPrior((), same, other), check_input_size(input_shape), like.detach()
    if not isinstance(covariance, Tensor) or not covariance.is_floating_point():
        found = covariance.dtype if isinstance(covariance, Tensor) else type(covariance).__name__
        raise InputTypeError(f'covariance must be "stationary" or a tensor of floating-point numbers. Got {found}.')
    rank = covariance.ndim // 2
    positions = tuple(covariance.shape[:rank])
    if covariance.ndim % 2 or rank == 0 or positions != tuple(covariance.shape[rank:]) or 0 in positions:
        raise InputError(
            "covariance must have the shape (*positions, *positions), such as (32, 32, 32, 32) for images of 32 x 32 pixels. "
            f"Got {tuple(covariance.shape)}."
        )
    _check_covariance(covariance.detach().reshape(math.prod(positions), -1))
    if input_shape is None:
        fits = [shape for shape in channels if shape[1:] == positions or shape[:-1] == positions]
        if not fits:
            raise InputError(
                f"the shape of inputs with positions {positions} cannot be read from the module. Write "
                "limit.with_prior(covariance, input_shape=(channels, height, width))."
            )
        input_shape = fits[0]
    return ops.GivenPrior(covariance), check_input_size(input_shape), covariance.detach()


def _check_covariance(matrix: Tensor) -> None:
    check_finite("covariance", matrix)
    size = matrix.abs().max()
    if float((matrix - matrix.T).abs().max()) > _ROUNDING * float(size):
        raise InputError(
            "covariance must be symmetric, K[p, p'] = K[p', p]. Write (K + K.T) / 2 over flattened positions."
        )
    variance = matrix.diagonal()
    bound = (variance[:, None].clamp_min(0) * variance.clamp_min(0)).sqrt()
    if bool((variance < 0).any()) or bool((matrix.abs() > bound + _ROUNDING * size).any()):
        raise InputError(
            "covariance must be positive semidefinite: variances K[p, p] not negative, and |K[p, p']| at most "
            "sqrt(K[p, p] K[p', p']). The one given is not."
        )


def with_prior_input(program: ops.Program, prior: ops.Prior) -> ops.Program:
    """Replace the data, which the network must read once and with the positions of the prior, by the prior."""
    reads = [index for index, node in enumerate(program.nodes) if isinstance(node.op, (ops.Input, ops.DataMap))]
    if len(reads) != 1 or program.prefixes != (None,) or not _read_by_layers(program, reads[0]):
        raise InputError(
            "with_prior needs a module whose first layer reads the input itself, and nothing else does: what is computed from "
            "data before the first layer, or joins them later, has no covariance. Leave that part out of the module."
        )
    node = program.nodes[reads[0]]
    assert isinstance(node.op, ops.Input)
    if isinstance(prior, ops.StationaryPrior):
        prior = replace(prior, positions=node.positions)
    elif isinstance(prior, ops.GivenPrior):
        given = tuple(prior.covariance.shape[: prior.covariance.ndim // 2])
        if given != node.positions:
            raise InputError(
                f"the module reads inputs of {node.positions} positions, and the covariance is over {given}. Give a covariance "
                f"of shape {node.positions + node.positions}."
            )
    nodes = list(program.nodes)
    nodes[reads[0]] = replace(node, op=prior)
    return replace(program, nodes=tuple(nodes))


def _read_by_layers(program: ops.Program, index: int) -> bool:
    """Return whether only layers with weights read a node, perhaps after position maps: they need only its covariance."""
    for reader, node in enumerate(program.nodes):
        if index in node.inputs and not isinstance(node.op, (ops.Dense, ops.Conv)):
            moved = isinstance(node.op, (ops.PositionMap, ops.Arrange, ops.Split, ops.Contract))
            if not (moved and _read_by_layers(program, reader)):
                return False
    return True
