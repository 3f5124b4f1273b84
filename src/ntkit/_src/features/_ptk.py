"""The pre-activation tangent kernel and the tangent kernel of a layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ntkit._src.common import check_pair, measuring
from ntkit._src.kernels.finite_network import BYTE_BUDGET, Layer, layer_gram
from ntkit.errors import InputError

from ._layers import find_layers
from ._matrices import batches
from ._passes import run

Side = tuple[Tensor, Tensor]
"""Of some samples: J, shape (n, c, groups, out / groups, P), and patches, shape (n, groups, P, in * window / groups)."""


def ptk(
    module: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    layers: Sequence[str] | None = None,
    batch_size: int | None = None,
    positions: bool = False,
) -> dict[str, Tensor]:
    r"""Return the pre-activation tangent kernel of every layer, :math:`\kappa(x, z) = J(x) \cdot J(z)`.

    With :math:`J = \partial f / \partial h` at the layer's pre-activation h, summed over outputs and over the positions of a
    convolution. For a fully connected layer the layer's tangent kernel is :math:`\kappa(x, z)\, x_l \cdot z_l`
    (Beaglehole et al. 2024, Proposition 3).

    Parameters
    ----------
    module, layers, batch_size
        As for :func:`ptk_covariance`.
    x1, x2
        Samples, shape (n1, ...) and (n2, ...); ``x2=None`` means ``x2 = x1``.
    positions
        Whether to keep positions separate: :math:`\kappa_{pq}(x, z) = J_p(x) \cdot J_q(z)`.

    Returns
    -------
    dict
        From a layer's path to kappa, shape (n1, n2), or (n1, n2, P, P).

    See Also
    --------
    layer_ntk : the tangent kernel of a layer.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(2, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    >>> x = torch.eye(2)
    >>> torch.allclose(features.layer_ntk(net, x)["0"], features.ptk(net, x)["0"] * (x @ x.T))
    True
    """

    def product(first: Side, second: Side) -> Tensor:
        j1, j2 = (side[0].flatten(2, 3) for side in (first, second))  # (n, c, out, P)
        return torch.einsum("acdp,bcdq->abpq", j1, j2) if positions else j1.flatten(1) @ j2.flatten(1).T

    return _pairwise(module, x1, x2, layers, batch_size, product, positions)


def layer_ntk(
    module: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    layers: Sequence[str] | None = None,
    batch_size: int | None = None,
) -> dict[str, Tensor]:
    r"""Return the contribution of every layer's weight to the empirical tangent kernel, summed over outputs.

    .. math:: \sum_{p, q} \bigl(J_p(x) \cdot J_q(z)\bigr) \bigl(x_{l,p} \cdot z_{l,q}\bigr)

    over pairs of positions, with the patches :math:`x_{l,p}`; for a fully connected layer
    :math:`\kappa(x, z)\, x_l \cdot z_l` (Beaglehole et al. 2024, Proposition 3). It refers to the weight that the layer uses:
    a parametrisation :math:`W = c\,\omega` multiplies it by :math:`c^2`.

    Parameters
    ----------
    module, x1, x2, layers, batch_size
        As for :func:`ptk`.

    Returns
    -------
    dict
        From a layer's path to its kernel, shape (n1, n2).

    See Also
    --------
    ntkit.empirical : the tangent kernel of all parameters.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    >>> x = torch.eye(2)
    >>> torch.allclose(sum(ntkit.features.layer_ntk(net, x).values()), ntkit.empirical(net).ntk(x))
    True
    """

    def product(first: Side, second: Side) -> Tensor:
        (j1, a1), (j2, a2) = first, second
        formed = (
            j1.shape[3] * a1.shape[3] <= a1.shape[2] * a2.shape[2]
        )  # the gradient has fewer entries than pairs of positions
        return layer_gram((a1, a2), (j1, j2), full=False, jacobian_first=formed, byte_budget=BYTE_BUDGET)

    return _pairwise(module, x1, x2, layers, batch_size, product)


def _pairwise(
    module: nn.Module,
    x1: Tensor,
    x2: Tensor | None,
    layers: Sequence[str] | None,
    batch_size: int | None,
    product: Callable[[Side, Side], Tensor],
    positions: bool = False,
) -> dict[str, Tensor]:
    found = find_layers(module, layers)
    with measuring(module):
        rows = list(batches(module, x1, found, batch_size))
        columns = rows if x2 is None else list(batches(module, x2, found, batch_size))
    if x2 is not None:
        check_pair(x1, x2)
    blocks: dict[str, list[list[Tensor]]] = {path: [] for path in found}
    for i, first in enumerate(rows):
        sides1 = _sides(module, first, found)
        for path in found:
            blocks[path].append([])
        for j, second in enumerate(columns):
            if x2 is None and j < i:
                for path in found:
                    mirror = blocks[path][j][i].transpose(0, 1)
                    blocks[path][i].append(mirror.mT if positions else mirror)
                continue
            sides2 = sides1 if x2 is None and i == j else _sides(module, second, found)
            for path in found:
                _check_positions(path, sides1[path], sides2[path])
                blocks[path][i].append(product(sides1[path], sides2[path]))
    return {path: torch.cat([torch.cat(row, 1) for row in grid]) for path, grid in blocks.items()}


def _check_positions(path: str, first: Side, second: Side) -> None:
    if first[0].shape[2:] != second[0].shape[2:]:
        raise InputError(
            f"layer {path!r} must be applied at the same positions for every sample. Got {first[0].shape[-1]} and "
            f"{second[0].shape[-1]}: pass samples of the same size."
        )


def _sides(module: nn.Module, x: Tensor, layers: dict[str, Layer]) -> dict[str, Side]:
    with measuring(module):
        look = run(module, x, layers, features=True)
        c = look.values.shape[1]
        outputs: dict[str, list[Tensor]] = {path: [] for path in layers}
        for output in range(c):
            for path, gradients in look.output_gradients(output, output < c - 1).items():
                outputs[path].append(torch.cat(look.split(path, gradients), 3))
        return {path: (torch.stack(parts, 1), look.patches(path)) for path, parts in outputs.items()}
