"""The limit kernel of the theorems about two-layer networks of which only the first layer is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntkit._src.common import check_batches
from ntkit._src.kernels import infinite_width
from ntkit.errors import InputError


def two_layer_gram(x: Tensor) -> Tensor:
    r"""Return the Gram matrix of the limit kernel for training the first layer of a two-layer ReLU network.

    For :math:`f(x) = \frac{1}{\sqrt n} \sum_i a_i [w_i^T x]_+` with :math:`w_i \sim N(0, I)`, signs :math:`a_i` and only the
    :math:`w_i` trained,

    .. math:: H_{kl} = \mathbb{E}_w\, [w^T x_k > 0][w^T x_l > 0]\, x_k^T x_l
              = \frac{\pi - \arccos \rho_{kl}}{2 \pi}\, x_k^T x_l

    with the cosine :math:`\rho_{kl}` of the two inputs (Golikov et al. 2022 [1]_, eq. 124; Du et al. 2019).

    Parameters
    ----------
    x : Tensor of shape (m, d)
        Inputs, float32 or float64.

    Returns
    -------
    Tensor
        Shape (m, m), in the dtype and on the device of x.

    See Also
    --------
    ntkit.diagnostics.bounds : What the theorems say about it.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import torch, ntkit
    >>> ntkit.diagnostics.two_layer_gram(torch.tensor([[1.0, 0.0], [0.6, 0.8]]))
    tensor([[0.5000, 0.2114],
            [0.2114, 0.5000]])
    """
    check_batches(x, None)
    if x.ndim != 2:
        raise InputError(f"x must have shape (m, d), one vector per input. Got {tuple(x.shape)}. Write x.flatten(1).")
    dim = x.shape[1]
    with torch.device("meta"):
        shape = nn.Sequential(nn.Linear(dim, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    net = shape.to_empty(device="cpu")  # the limit does not depend on the weights
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    net[2].requires_grad_(False)
    return infinite_width(net, w_std=1.0, b_std=0.0, overrides={"0": {"w_std": dim**0.5}}).ntk(x)
