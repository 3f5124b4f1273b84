"""The first moments of training: how the weights' and the gradients' matrices start to move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit._src.common import LossFunction, find_loss, measuring, read_targets
from ntkit.errors import InputError

from ._correlation import Kind, check_kind, correlation
from ._layers import find_layers
from ._matrices import add_products, batches, sandwich
from ._passes import run

__all__ = ["EarlyAlignment", "early_alignment"]


@dataclass(frozen=True)
class EarlyAlignment:
    r"""Half the second derivatives in time of the centred matrices of a layer at the start of gradient flow.

    Attributes
    ----------
    P
        Of :math:`\bar W^T \bar W`: :math:`\dot W^T \dot W = X^T D \kappa D X`, shape (in, in).
    Q
        Of :math:`\bar W^T (nK) \bar W`: :math:`\dot W^T (n K) \dot W = X^T D \kappa^2 D X`, shape (in, in); n times that of the
        centred average gradient outer product.
    rho
        Their correlation; nan if the gradient is zero.
    kind
        Kind of the correlation.
    """

    P: Tensor
    Q: Tensor
    rho: float
    kind: Kind


def early_alignment(
    module: nn.Module,
    x: Tensor,
    y: Tensor,
    loss: str | LossFunction = "mse",
    kind: Kind = "cosine",
    layers: Sequence[str] | None = None,
    batch_size: int | None = None,
) -> dict[str, EarlyAlignment]:
    r"""Predict, from the module's present state, the centred correlation of every layer right after training starts.

    At t = 0 the centred matrices :math:`\bar W^T \bar W`, :math:`\bar W^T K \bar W` and their first derivatives vanish. Their
    second derivatives are 2P and, with the sum over samples in place of the mean in K, 2Q:

    .. math:: P = X^T D \kappa D X, \qquad Q = X^T D \kappa^2 D X

    with X the layer's input, :math:`\kappa` its pre-activation tangent kernel (:func:`ptk`) and
    :math:`D = \operatorname{diag}(\partial L / \partial f)`, the residuals for squared error (Beaglehole et al. 2024,
    Propositions 5 and 6, equation 4). Computed as :math:`P = \dot W^T \dot W` and :math:`Q = \dot W^T (nK) \dot W` with
    :math:`\dot W = -\partial L / \partial W`, which holds for every layer, several outputs and convolutions alike.

    Parameters
    ----------
    module, layers, batch_size
        As for :func:`ptk_covariance`.
    x, y
        Training samples, shape (n, ...), and targets: (n,) or the shape of the outputs; for ``"cross_entropy"`` classes.
    loss
        ``"mse"`` (half the squared error), ``"cross_entropy"``, ``"binary_cross_entropy"``, or a function of outputs and
        targets, both of shape (n, c), that returns the sum over the samples.
    kind
        Kind of correlation.

    Returns
    -------
    dict
        From a layer's path to its :class:`EarlyAlignment`, for the weight that the layer uses: if a parametrisation
        multiplies the trained parameter by c, P and Q grow by c to the fourth power; the correlation does not change.

    See Also
    --------
    predict_alignment : the same from the data alone, for wide quadratic networks.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    >>> x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    >>> found = features.early_alignment(net, x, y)["0"]
    >>> found.P.shape, -1 <= found.rho <= 1
    (torch.Size([3, 3]), True)
    """
    check_kind(kind)
    found = find_layers(module, layers)
    with measuring(module), torch.no_grad():
        parts = list(batches(module, x, found, batch_size))
        values = torch.cat([module(part).reshape(len(part), -1) for part in parts])
    measure = find_loss(loss)
    targets = read_targets(measure, y, values)
    targets = targets.reshape(len(values), -1)
    if targets.shape != values.shape:
        raise InputError(
            f"y must have one entry for each of the {values.shape[1]} outputs of a sample. Got shape {tuple(y.shape)} for "
            f"outputs of shape {tuple(values.shape)}."
        )
    slopes = measure.slope(values, targets)
    covariance: dict[str, Tensor] = {}
    velocity: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    with measuring(module):
        for part, slope in zip(parts, slopes.split([len(part) for part in parts]), strict=True):
            look = run(module, part, found, features=True)
            weights = look.weights
            for path, gradients in look.gradients(slope, keep=True).items():
                arrived = torch.cat(look.split(path, gradients), 3)  # (n, groups, out / groups, P)
                own = torch.block_diag(*torch.einsum("ngdp,ngpq->gdq", arrived, look.patches(path)))
                velocity[path] = velocity[path] - own if path in velocity else -own
            for jacobians in look.jacobians():
                add_products(covariance, jacobians)
    result = {}
    for path in found:
        assert velocity[path].shape == weights[path].shape
        P, Q = velocity[path].T @ velocity[path], sandwich(velocity[path], covariance[path])
        result[path] = EarlyAlignment(P, Q, correlation(P, Q, kind), kind)
    return result
