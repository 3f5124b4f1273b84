"""The limit of the tangent kernel over the width, in the standard parametrisation."""

from __future__ import annotations

from torch import Tensor, nn

from ntkit._src.common import check_integer, check_module
from ntkit._src.finite import widen
from ntkit._src.kernels import infinite_width
from ntkit.errors import InputError

_LINEAR = 1e-4


def normalized_limit(
    module: nn.Module, x: Tensor, width: int, w_std: float | None = None, b_std: float | None = None
) -> Tensor:
    r"""Return the limit of :math:`\Theta / n` as the hidden widths grow, n the width, in the standard parametrisation.

    There every weight is trained unscaled, drawn with variance :math:`w^2 / fan\_in`, and the tangent kernel grows as
    :math:`\Theta = n A + B`: layers that read hidden units contribute A, the first layer and the biases B. The normalised
    kernel tends to A, which for two layers is :math:`\mathbb{E}\, \phi(w x) \phi(w x')` (Golikov et al. 2022 [1]_, section 7).
    Unlike the kernel of the NTK parametrisation it moves during training at any width.

    Parameters
    ----------
    module : nn.Module
        A network with an infinite-width limit, whose hidden widths :func:`ntkit.widen` can multiply. Not changed.
    x : Tensor of shape (m, ...)
        Inputs.
    width : int
        n of this module: the number by which the kernel is divided.
    w_std, b_std : float, optional
        As in :func:`ntkit.infinite_width`. Defaults sqrt(2) and 0.

    Returns
    -------
    Tensor
        A, shape (m, m).

    Raises
    ------
    InputError
        If the kernel does not grow in proportion to the width.

    References
    ----------
    .. [1] Golikov, Pokonechnyy, Korviakov, "Neural Tangent Kernel: A Survey", 2022.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    >>> ntkit.diagnostics.normalized_limit(net, torch.ones(1, 1), width=16, w_std=1.0)
    tensor([[0.5000]])
    """
    check_module(module)
    check_integer("width", width, 1)
    one, two, three = (
        infinite_width(net, w_std, b_std, init="standard").ntk(x)
        for net in (module, widen(module, 2, example=x[:1]), widen(module, 3, example=x[:1]))
    )
    bend = float((three - 2 * two + one).abs().max())
    if bend > _LINEAR * float(three.abs().max()):
        raise InputError(
            f"the kernel of the standard parametrisation must grow in proportion to the width. Here it bends by {bend:.1e} from "
            "width 1 to 2 to 3 times: widths are multiplied somewhere. There is no such limit."
        )
    return (two - one) / width
