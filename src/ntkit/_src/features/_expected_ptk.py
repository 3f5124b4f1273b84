"""The pre-activation tangent kernel of an infinitely wide network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ntkit._src.common import check_batches, evaluation_mode
from ntkit._src.program import Conv, Dense, FixedNorm, Node, Normalize, Program
from ntkit._src.rules import gram
from ntkit._src.trace import GainRule, Init, Tracer
from ntkit.errors import InputError

from ._layers import find_layers


def expected_ptk(
    module: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    w_std: float | None = None,
    b_std: float | None = None,
    init: Init = "ntk",
    overrides: Mapping[str, Mapping[str, float]] | None = None,
    layers: Sequence[str] | None = None,
) -> dict[str, Tensor]:
    r"""Return the expected pre-activation tangent kernel of a network with infinitely wide hidden layers.

    :math:`E[\kappa(x, z)]`, the product of the derivative kernels after the layer: for two hidden layers and the first of them
    :math:`w_1^2 w_2^2\, E[\phi'(u_0) \phi'(v_0)]\, E[\phi'(u_1) \phi'(v_1)]` (Beaglehole et al. 2024, appendix C). It is what a
    trained bias of the layer with gain 1 would add to the infinite tangent kernel, so nothing is divided by
    :math:`x \cdot z`, which may be zero.

    Parameters
    ----------
    module
        As for :func:`ntkit.infinite_width`; its own weights do not matter.
    x1, x2
        Samples, shape (n1, ...) and (n2, ...); ``x2=None`` means ``x2 = x1``.
    w_std, b_std, init, overrides
        The variances, as for :func:`ntkit.infinite_width`: weights have variance ``w_std**2 / fan_in``. The paper's networks
        have ``w_std=1``. Default None: the gains of a module in the NTK parametrisation, otherwise sqrt(2) and 0.
    layers
        Paths of the layers to compute; None: all.

    Returns
    -------
    dict
        From a layer's path to the kernel, shape (n1, n2), summed over the module's outputs as :func:`ptk` is.

    Raises
    ------
    UnsupportedLayerError
        If the limit has no closed form.
    InputError
        For layers that are applied at several positions, or several times.

    See Also
    --------
    ptk : of a finite network.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(2, 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    >>> features.expected_ptk(net, x, w_std=1.0)["0"]  # the chance that a neuron is on for both
    tensor([[0.5000, 0.2500],
            [0.2500, 0.5000]], dtype=torch.float64)
    """
    found = find_layers(module, layers)
    check_batches(x1, x2)
    tracer = Tracer(module, GainRule(w_std, b_std, init, dict(overrides or {})))
    program = tracer.program(x1.shape[1:])
    frozen = replace(program, nodes=tuple(_frozen(node) for node in program.nodes))
    if bool(_tangent(frozen, x1[:2], None).any()):
        raise InputError("the module has trained parameters other than those of layers and norms. Freeze them first.")
    with torch.no_grad(), evaluation_mode(module):
        outputs = module(x1[:1].to(next(module.parameters()))).numel()
    result = {}
    for path in found:
        index = _place(program, path)
        node = frozen.nodes[index]
        assert isinstance(node.op, (Dense, Conv))
        bias = replace(node, op=replace(node.op, gains=replace(node.op.gains, bias_rate=1.0)), trained=True)
        nodes = (*frozen.nodes[:index], bias, *frozen.nodes[index + 1 :])
        result[path] = outputs * _tangent(replace(frozen, nodes=nodes), x1, x2)
    return result


def _tangent(program: Program, x1: Tensor, x2: Tensor | None) -> Tensor:
    value = gram(program, x1, x2, ntk=True, nngp=False).ntk
    assert value is not None
    return value


def _frozen(node: Node) -> Node:
    match node.op:
        case Dense() | Conv():
            return replace(node, op=replace(node.op, gains=replace(node.op.gains, weight_rate=0.0, bias_rate=0.0)))
        case Normalize() | FixedNorm():
            return replace(node, op=replace(node.op, weight_trained=False, bias_trained=False))
    return node


def _place(program: Program, path: str) -> int:
    places = [i for i, node in enumerate(program.nodes) if isinstance(node.op, (Dense, Conv)) and node.path == path]
    if len(places) != 1 or program.nodes[places[0]].positions:
        why = "is applied at several positions" if len(places) == 1 else f"is used {len(places)} times"
        raise InputError(
            f"the expected kernel exists for layers that read one vector per sample. Layer {path!r} {why}. "
            "Name others in layers=..., or average ptk(...) over random networks."
        )
    return places[0]
