"""Tangent kernels by forming derivatives: works for every parameter of every module."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from ._layers import contract
from ._network import Inputs, Network
from ._survey import Diagonal, Survey, Total, slices


def jacobian_rows(network: Network, names: Sequence[str], x: Inputs, outputs: slice) -> dict[str, Tensor]:
    """Return the derivatives of each row's outputs with respect to the named parameters, each (n, s, *shape)."""
    parameters = {name: network.trained[name] for name in names}

    def of_row(values: dict[str, Tensor], row: tuple[Tensor, ...]) -> Tensor:
        return network(x.like([tensor[None] for tensor in row]), values)[0, outputs]

    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop", category=UserWarning)
            found: dict[str, Tensor] = vmap(jacrev(of_row), (None, 0))(
                {name: parameter.detach() for name, parameter in parameters.items()}, tuple(x.tensors.values())
            )
    except (RuntimeError, ValueError, TypeError, NotImplementedError):  # vmap lacks some of autograd
        return _row_by_row(network, parameters, x, outputs)
    return found if _agrees(network, found, x, outputs) else _row_by_row(network, parameters, x, outputs)


def _agrees(network: Network, found: dict[str, Tensor], x: Inputs, outputs: slice) -> bool:
    """Compare a random combination of all derivatives with plain autograd's, in one backward pass."""
    # Batching rules of vmap can be silently wrong: PReLU's is in torch 2.13 when there are as many rows as outputs. And a
    # module may compute something else when it notices that its weights are not parameters.
    parameters = [network.trained[name] for name in found]
    with torch.enable_grad():
        values = network(x)[:, outputs]
        weights = torch.randn(values.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(values)
        gradients = torch.autograd.grad(values, parameters, weights, allow_unused=True, materialize_grads=True)
    for derivative, gradient in zip(found.values(), gradients, strict=True):
        if derivative.numel() != weights.numel() * gradient.numel():
            return False
        rows = derivative.reshape(weights.numel(), -1)
        if bool(
            (weights.flatten() @ rows - gradient.flatten()).norm() > torch.finfo(rows.dtype).eps ** 0.5 * rows.norm()
        ):
            return False
    return True


def _row_by_row(
    network: Network, parameters: dict[str, torch.nn.Parameter], x: Inputs, outputs: slice
) -> dict[str, Tensor]:
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    with torch.enable_grad():
        for row in range(len(x)):
            values = network(x[row : row + 1])[0, outputs]
            for value in values:
                gradients = torch.autograd.grad(
                    value, list(parameters.values()), retain_graph=True, materialize_grads=True, allow_unused=True
                )
                for name, gradient in zip(parameters, gradients, strict=True):
                    rows[name].append(gradient)
    return {name: torch.stack(found).unflatten(0, (len(x), -1)) for name, found in rows.items()}


def jacobian_gram(survey: Survey, names: Sequence[str], x1: Inputs, x2: Inputs | None, total: Total) -> None:
    """Add the kernel of the named parameters: derivatives of tiles of rows, in blocks of parameters and outputs."""
    network = survey.network
    for block, s, rows in _plan(survey, names):
        for outputs1 in slices(survey.outputs, s):
            for rows1 in slices(len(x1), rows):
                first = jacobian_rows(network, block, x1[rows1], outputs1)
                for outputs2 in slices(survey.outputs, s) if network.full else [outputs1]:
                    for rows2 in slices(len(x1), rows, rows1.stop) if x2 is None else slices(len(x2), rows):
                        same = x2 is None and rows1 == rows2 and outputs1 == outputs2
                        other = x1 if x2 is None else x2
                        second = first if same else jacobian_rows(network, block, other[rows2], outputs2)
                        for name in block:
                            value = contract(first[name], second[name], network.full)
                            total.add(name, value, (rows1, outputs1), (rows2, outputs2))


def jacobian_diag(survey: Survey, names: Sequence[str], x: Inputs, diagonal: Diagonal) -> None:
    """Add the squared norms of the derivatives with respect to the named parameters."""
    for block, s, rows in _plan(survey, names):
        for outputs in slices(survey.outputs, s):
            for chunk in slices(len(x), rows):
                for derivative in jacobian_rows(survey.network, block, x[chunk], outputs).values():
                    diagonal.add((derivative**2).reshape(*derivative.shape[:2], -1).sum(2), chunk, outputs)


def _plan(survey: Survey, names: Sequence[str]) -> Iterator[tuple[list[str], int, int]]:
    """Yield blocks of parameters, and how many outputs and rows of their derivatives to form at a time."""
    # Blocks are as large as a few rows allow: smaller ones would only repeat the forward pass more often.
    trained = survey.network.trained
    sizes = {name: trained[name].numel() * trained[name].element_size() for name in names}
    share = survey.byte_budget // 8
    blocks: list[list[str]] = []
    for name in names:
        if not blocks or survey.outputs * sum(sizes[other] for other in [*blocks[-1], name]) > share:
            blocks.append([])
        blocks[-1].append(name)
    for block in blocks:
        size = sum(sizes[name] for name in block)
        s = min(survey.outputs, max(1, share // size))
        # vmap keeps the activations of every output during the backward pass.
        yield block, s, max(1, survey.byte_budget // (3 * s * (size + survey.row_bytes)))
