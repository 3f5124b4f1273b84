"""The kernels of the tangent hierarchy of a finite network, contracted with vectors."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ntkit._src.common import measuring
from ntkit._src.kernels import BYTE_BUDGET
from ntkit.errors import InputError

from ._tangents import Tangents, check_weights, scalar_network

__all__ = ["tangent_hierarchy"]


def tangent_hierarchy(
    module: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    vectors: Sequence[Tensor] = (),
    x: Tensor | None = None,
    *,
    output: int | None = None,
    byte_budget: int = BYTE_BUDGET,
) -> Tensor:
    r"""Contract the kernel of order r of a network's tangent hierarchy with r - 2 vectors.

    .. math:: K^{(2)}(x, x') = \nabla f(x) \cdot \nabla f(x'), \qquad
              K^{(r+1)}(\ldots, x_i) = \nabla K^{(r)}(\ldots) \cdot \nabla f(x_i)

    are the kernels by which gradient flow moves the tangent kernel (Chen et al. 2020, eq. 3 and section B.1; Huang and Yau
    2019). Given vectors u, v, ..., this is :math:`\sum_{ij\ldots} u_i v_j \cdots K^{(r)}(x, x', x_i, x_j, \ldots)`: the
    derivative of the tangent kernel along :math:`g_u = \sum_i u_i \nabla f(x_i)`, of that along :math:`g_v`, where
    :math:`g_u` moves too, and so on. From r = 4 on the order of the vectors matters. Unit vectors give entries.

    Derivatives are nested in forward mode along parameter vectors, with one reverse-mode pass; no tensor of order 3 is formed.
    By the Leibniz rule the kernel is a sum of :math:`2^{r-2}` products of derivatives of Jacobians, computed in tiles.

    Parameters
    ----------
    module
        The module with its present parameters, in evaluation mode; any module that :func:`ntkit.empirical` accepts and whose
        operations have forward-mode derivatives. Derivatives are those at the present parameters: at kinks, as of ReLU (or for
        K4 of ELU), the delta function is missing. These are the exact rates until a neuron crosses its kink, but neither their
        mean over networks nor their integral over time is that of the kernels: :class:`ntkit.TangentHierarchy` and
        :func:`ntkit.finite_width_correction`, which need those, refuse such modules.
    x1, x2
        Inputs, shape (n1, ...) and (n2, ...); ``x2=None``, the default, means ``x2 = x1``.
    vectors
        r - 2 vectors of shape (n,); none, the default, gives the tangent kernel.
    x
        The inputs that the vectors weight, shape (n, ...): the training points. Default None, if there are no vectors.
    output
        Index of the output, for a module with several. Default None: there is only one.
    byte_budget
        About how many bytes may be held at a time, not counting the result and one row's derivatives, default
        512 MiB.

    Returns
    -------
    Tensor
        Shape (n1, n2).

    See Also
    --------
    ntkit.hierarchy_terms : The terms of these kernels, written out.
    ntkit.TangentHierarchy : The label-aware kernel that follows from them.
    ntkit.finite_width_correction : The predictions that follow from them.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> product = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()  # f(x) = b a x
    >>> for layer, value in zip(product, (3.0, 5.0)):
    ...     _ = nn.init.constant_(layer.weight, value)
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> ntkit.tangent_hierarchy(product, one).item()  # a^2 + b^2
    34.0
    >>> ntkit.tangent_hierarchy(product, one, vectors=[one[0]], x=one).item()  # along (b, a): 2 a b + 2 b a
    60.0
    >>> ntkit.tangent_hierarchy(product, one, vectors=[one[0], one[0]], x=one).item()  # 4 (a a + b b)
    136.0
    """
    network = scalar_network(module, output, x1, x2)
    vectors = list(vectors)
    if vectors and x is None:
        raise InputError("x must be the inputs that the vectors weigh, shape (n, ...). Got None with vectors.")
    if x is not None:
        network.check(x1, x, trained=True)
    for number, vector in enumerate(vectors):
        check_weights(
            f"vectors[{number}]", vector, (len(x1 if x is None else x),), next(iter(network.trained.values()))
        )
    if isinstance(byte_budget, bool) or not isinstance(byte_budget, int) or byte_budget < 1:
        raise InputError(f"byte_budget must be a positive number of bytes. Got {byte_budget!r}.")
    tangents = Tangents(network, x1 if x is None else x, byte_budget)
    with measuring(module):
        return tangents.gram(x1, x2, [vectors])
