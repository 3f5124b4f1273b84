"""What derivatives reveal: the inputs of a first linear layer."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit.errors import InputError

__all__ = ["recover_inputs"]


def recover_inputs(weight: Tensor, bias: Tensor) -> Tensor:
    r"""Recover inputs from the derivatives of the first ``Linear`` layer: why unprojected Jacobians are not private.

    With :math:`z = W x + b` and :math:`\delta_o = \partial f_o / \partial z`, the derivatives are
    :math:`\partial f_o / \partial W = \delta_o x^T` and :math:`\partial f_o / \partial b = \delta_o`, so each row of the first is
    a known multiple of x. The best estimate is found by least squares over units and outputs.

    Parameters
    ----------
    weight : Tensor of shape (n, k, units * features)
        Derivatives of the outputs with respect to the layer's weight, as a worker sends them.
    bias : Tensor of shape (n, k, units)
        Derivatives with respect to its bias.

    Returns
    -------
    Tensor of shape (n, features)
        The inputs; NaN for a row whose derivatives are all zero (all units off).

    See Also
    --------
    FederatedNTK : sends such derivatives with ``share="jacobian"``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit_studies.methods import Worker, recover_inputs
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    >>> worker = Worker(torch.randn(4, 5, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64))
    >>> sent = worker.jacobian(net, "0.weight"), worker.jacobian(net, "0.bias")
    >>> bool((recover_inputs(*sent) - worker.x).abs().max() < 1e-12)
    True
    """
    if weight.ndim != 3 or bias.ndim != 3 or weight.shape[:2] != bias.shape[:2] or weight.shape[2] % bias.shape[2]:
        raise InputError(
            "weight and bias must be derivatives of shape (n, k, units * features) and (n, k, units). "
            f"Got {tuple(weight.shape)} and {tuple(bias.shape)}."
        )
    rows = weight.unflatten(2, (bias.shape[2], -1))
    power = (bias**2).sum((1, 2))
    found = torch.einsum("nkuf,nku->nf", rows, bias)
    return found / torch.where(power > 0, power, torch.nan)[:, None]
