"""The neural feature matrix, the average gradient outer product and the covariance of the derivatives, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from ntkit._src.common import measuring
from ntkit._src.kernels.finite_network import Call as _Call
from ntkit._src.kernels.finite_network import Layer, read_patches

from ._layers import check_batch_size, check_measurable, find_layers, row_bytes
from ._passes import LayerCall, Pass, dense_weight, run

AUTOMATIC_BYTES = 1 << 27
"""Bytes that the graph of one batch may hold if the user gives no batch size."""


def nfm(module: nn.Module, layers: Sequence[str] | None = None) -> dict[str, Tensor]:
    r"""Return the neural feature matrix :math:`F = W^T W` of every linear and convolutional layer.

    W is the weight that the layer uses, parametrisations applied; that of a convolution has the shape
    (out, in * window), flattened as (in, height, width), and is block diagonal if the channels are grouped
    (Radhakrishnan et al. 2022; Beaglehole et al. 2024, section 2).

    Parameters
    ----------
    module
        Any module with ``Linear`` or ``Conv`` layers.
    layers
        Paths of the layers wanted; None is all of them.

    Returns
    -------
    dict
        From a layer's path to F, shape (in, in) or (in * window, in * window).

    See Also
    --------
    agop : the matrix that F is proportional to, by the neural feature ansatz.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> {path: tuple(F.shape) for path, F in features.nfm(net).items()}
    {'0': (3, 3), '2': (8, 8)}
    """
    found = find_layers(module, layers)
    with measuring(module):
        weights = {path: dense_weight(layer) for path, layer in found.items()}
    return {path: weight.T @ weight for path, weight in weights.items()}


def ptk_covariance(
    module: nn.Module, x: Tensor, layers: Sequence[str] | None = None, batch_size: int | None = None
) -> dict[str, Tensor]:
    r"""Return :math:`K = \frac1n \sum_a J_a^T J_a`, with :math:`J = \partial f / \partial h` at a layer's pre-activation h.

    Summed over the outputs, over the positions of a convolution, and over the calls of a layer that is used repeatedly. J
    follows the path through the layer alone (Beaglehole et al. 2024, Proposition 2, whose K lacks the 1/n).

    Parameters
    ----------
    module
        The module, in evaluation mode if it has dropout or batch norms; float32 or float64. Frozen layers are measured too,
        and so is the ``out_proj`` of ``nn.MultiheadAttention``, but not its ``in_proj_weight``, which is no layer. Modes,
        buffers, gradients, hooks and all global generators are left as they were.
    x
        Samples, shape (n, ...).
    layers
        Paths of the layers wanted; None is all of them.
    batch_size
        Samples processed at a time, which bounds the memory; None fits the graph into about 128 MB.

    Returns
    -------
    dict
        From a layer's path to K, shape (out, out).

    Raises
    ------
    InputError, InputTypeError
        For inputs that the module cannot take; for modules whose outputs are random or depend on the whole batch; for layers
        that the forward pass does not use, or that mix samples.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> x = torch.ones(5, 3)
    >>> K, G = features.ptk_covariance(net, x)["0"], features.agop(net, x)["0"]
    >>> W = net[0].weight.detach()
    >>> torch.allclose(G, W.T @ K @ W)
    True
    """
    found = find_layers(module, layers)
    sums: dict[str, Tensor] = {}
    with measuring(module):
        for part in batches(module, x, found, batch_size):
            for jacobians in run(module, part, found).jacobians():
                add_products(sums, jacobians)
    return {path: sums[path] / len(x) for path in found}


def agop(
    module: nn.Module,
    x: Tensor,
    layers: Sequence[str] | None = None,
    batch_size: int | None = None,
    total: bool = False,
) -> dict[str, Tensor]:
    r"""Return the average gradient outer product of every linear and convolutional layer.

    .. math:: G = \frac1n \sum_a g_a g_a^T = W^T K W, \qquad g = \partial f / \partial x_l = W^T J

    with :math:`x_l` the layer's input: for a convolution its unfolded patches, flattened as (in, height, width) and summed
    over positions. g follows the path through the layer alone, without which :math:`G = W^T K W` is false
    (Beaglehole et al. 2024, Proposition 2). Outputs are summed over.

    Parameters
    ----------
    module, x, layers, batch_size
        As for :func:`ptk_covariance`.
    total
        Whether to use the total derivative instead, which counts every use of the layer's input, including the branch around a
        residual block. For a convolution it is the derivative with respect to the input, unfolded like the input.

    Returns
    -------
    dict
        From a layer's path to G, shape (in, in) or (in * window, in * window).

    See Also
    --------
    nfm : the matrix it is compared with.
    nfa : the correlations of both.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> linear = nn.Sequential(nn.Linear(2, 1, bias=False))
    >>> with torch.no_grad():
    ...     _ = linear[0].weight.copy_(torch.tensor([[1.0, 2.0]]))
    >>> features.agop(linear, torch.ones(4, 2))["0"]
    tensor([[1., 2.],
            [2., 4.]])
    """
    found = find_layers(module, layers)
    if not total:
        with measuring(module):
            weights = {path: dense_weight(layer) for path, layer in found.items()}
        return {path: sandwich(weights[path], K) for path, K in ptk_covariance(module, x, layers, batch_size).items()}
    sums: dict[str, Tensor] = {}
    with measuring(module):
        for part in batches(module, x, found, batch_size):
            look = run(module, part, found, features=True, total=True)
            c = look.values.shape[1]
            for output in range(c):
                gradients = look.output_gradients(output, output < c - 1, read=True)
                add_products(
                    sums,
                    {
                        path: torch.cat(
                            [_unfolded(look, call, g) for call, g in zip(look.calls[path], gs, strict=True)], 1
                        )
                        for path, gs in gradients.items()
                    },
                )
    return {path: sums[path] / len(x) for path in found}


def batches(module: nn.Module, x: Tensor, layers: dict[str, Layer], batch_size: int | None) -> Iterator[Tensor]:
    """Check module and samples, and split the samples into batches that fit into memory."""
    check_batch_size(batch_size)
    look = check_measurable(module, x, layers)
    return iter(x.split(batch_size or max(1, AUTOMATIC_BYTES // row_bytes(look, layers))))


def add_products(sums: dict[str, Tensor], rows: dict[str, Tensor]) -> None:
    """Add J^T J of each layer, J of shape (n, P, out), to the layer's sum."""
    for path, values in rows.items():
        flat = values.flatten(0, 1)
        if path in sums:
            sums[path].addmm_(flat.T, flat)
        else:
            sums[path] = flat.T @ flat


def sandwich(weight: Tensor, inner: Tensor) -> Tensor:
    """Return W^T K W, symmetric to the bit."""
    product = weight.T @ (inner @ weight)
    return (product + product.T) / 2


def _unfolded(look: Pass, call: LayerCall, gradient: Tensor | None) -> Tensor:
    """Unfold the gradient with respect to a layer's input as the layer unfolds the input, shape (n, P, in * window)."""
    if gradient is None:
        gradient = torch.zeros_like(call.call.features)
    inner = call.call
    patches = read_patches(_Call(inner.layer, gradient, 0, inner.edge, inner.output_shape), len(look.values))
    return patches.transpose(1, 2).flatten(2)
