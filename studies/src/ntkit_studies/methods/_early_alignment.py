"""The first moments of training: how the weights' and the gradients' matrices start to move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

from ntkit.extending import LossFunction, find_loss, measuring, read_output_targets
from ntkit.features import correlation, ptk_covariance

__all__ = ["EarlyAlignment", "early_alignment"]

Kind = Literal["cosine", "pearson"]


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
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    >>> x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    >>> found = early_alignment(net, x, y)["0"]
    >>> found.P.shape, -1 <= found.rho <= 1
    (torch.Size([3, 3]), True)
    """
    covariance = ptk_covariance(module, x, layers=layers, batch_size=batch_size)
    measure = find_loss(loss)
    parts = x.split(batch_size or len(x))
    y = y[:, None] if y.ndim == 1 and y.is_floating_point() else y
    velocity: dict[str, Tensor] = {}
    with measuring(module):
        with torch.no_grad():
            values = torch.cat([module(part).reshape(len(part), -1) for part in parts])
        slopes = measure.slope(values, read_output_targets(measure, y, values))
        for part, slope in zip(parts, slopes.split([len(part) for part in parts]), strict=True):
            for path, gradient in _weight_gradients(module, part, slope, list(covariance)).items():
                velocity[path] = velocity[path] - gradient if path in velocity else -gradient
    result = {}
    for path, change in velocity.items():
        P, Q = change.T @ change, len(x) * change.T @ covariance[path] @ change
        result[path] = EarlyAlignment(P, Q, correlation(P, Q, kind), kind)
    return result


def _weight_gradients(module: nn.Module, x: Tensor, slope: Tensor, paths: Sequence[str]) -> dict[str, Tensor]:
    """Return dL/dW of the weights in use, shape (out, in * window) each, given dL/df of shape (n, c)."""
    with parametrize.cached(), torch.enable_grad():
        own, weights = {}, []
        for path in paths:
            layer = module.get_submodule(path)
            assert isinstance(layer.weight, Tensor)
            weight = layer.weight
            if not parametrize.is_parametrized(layer, "weight"):  # otherwise the cache hands out the same tensor
                weight = own[f"{path}.weight"] = weight.detach().requires_grad_()
            weights.append(weight)
        values = functional_call(module, own, (x,), tie_weights=False).reshape(slope.shape)
        gradients = torch.autograd.grad(values, weights, slope)
    found = {}
    for path, gradient in zip(paths, gradients, strict=True):
        groups = getattr(module.get_submodule(path), "groups", 1)
        found[path] = torch.block_diag(*gradient.flatten(1).chunk(groups))
    return found
