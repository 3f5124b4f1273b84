"""The neural feature ansatz: correlations of a layer's weights with the gradients of the network's outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from ntkit._src.common import measuring, shown
from ntkit.errors import InputError, InputTypeError

from ._correlation import Kind, check_kind, correlation
from ._layers import find_layers
from ._matrices import add_products, batches, sandwich
from ._passes import run


@dataclass(frozen=True)
class NFA:
    r"""How well the neural feature ansatz holds at one layer.

    With W the weight and :math:`W_0` the initial one, :math:`\bar W = W - W_0`, K the covariance of the derivatives J
    (:func:`ptk_covariance`), and :math:`\bar K = \frac1n \sum (J - J_0)^T (J - J_0)`. A number is **nan** if it is undefined:
    a correlation with a zero matrix (nothing has moved yet, or the derivatives never move, like those of a linear
    readout), or if the initial weights or derivatives were not given.

    Attributes
    ----------
    uncentred
        :math:`\rho(W^T W, W^T K W)`, the ansatz itself.
    centred
        :math:`\rho(\bar W^T \bar W, \bar W^T K \bar W)`.
    double_centred
        :math:`\rho(\bar W^T \bar W, \bar W^T \bar K \bar W)`.
    ptk_centred
        :math:`\rho(W_0^T W_0, W_0^T \bar K W_0)`.
    centred_ratio
        :math:`\operatorname{tr}(\bar W^T \bar W\, \bar W^T K \bar W) / \operatorname{tr}(W^T W\, W^T K W)`.
    double_ratio
        :math:`\operatorname{tr}(\bar W^T \bar W\, \bar W^T \bar K \bar W)` over
        :math:`\operatorname{tr}(\bar W^T \bar W\, \bar W^T K \bar W)`.
    movement
        :math:`|\bar W| / |W|`.
    kind
        Kind of the correlations: "cosine" or "pearson". The ratios use plain traces.
    """

    uncentred: float
    centred: float
    double_centred: float
    ptk_centred: float
    centred_ratio: float
    double_ratio: float
    movement: float
    kind: Kind


MEASURES = tuple(entry.name for entry in fields(NFA))[:-1]
"""The fields of :class:`NFA` that are numbers, in order."""


def nfa(
    module: nn.Module,
    x: Tensor,
    initial: Mapping[str, Tensor] | None = None,
    kind: Kind = "cosine",
    layers: Sequence[str] | None = None,
    batch_size: int | None = None,
) -> dict[str, NFA]:
    """Measure the neural feature ansatz and its centred forms at every linear and convolutional layer.

    Parameters
    ----------
    module, x, layers, batch_size
        As for :func:`ptk_covariance`.
    initial
        The module's ``state_dict`` at initialisation: ``{name: tensor.clone() for name, tensor in
        module.state_dict().items()}``. Without it the centred measures are nan.
    kind
        Which correlation: ``"cosine"`` (the paper's) or ``"pearson"``; see :func:`correlation`.

    Returns
    -------
    dict
        From a layer's path to its :class:`NFA`.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism of feature learning in deep fully connected networks and
       kernel machines that recursively learn features", 2022.
    .. [2] Beaglehole, Mitliagkas, Agarwala, "Gradient descent induces alignment between weights and the empirical NTK for deep
       non-linear networks", 2024.

    See Also
    --------
    Recorder : the same along training.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit import features
    >>> net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> start = {name: value.clone() for name, value in net.state_dict().items()}
    >>> found = features.nfa(net, torch.randn(5, 3), initial=start)
    >>> round(found["2"].uncentred, 6), found["2"].centred, found["2"].movement
    (1.0, nan, 0.0)
    """
    check_kind(kind)
    found = find_layers(module, layers)
    state = None if initial is None else check_state(module, initial)
    covariance: dict[str, Tensor] = {}
    moved: dict[str, Tensor] = {}
    weights: dict[str, Tensor] = {}
    starts: dict[str, Tensor] = {}
    with measuring(module):
        for part in batches(module, x, found, batch_size):
            now = run(module, part, found)
            weights = now.weights
            if state is None:
                for jacobians in now.jacobians():
                    add_products(covariance, jacobians)
                continue
            start = run(module, part, found, state)
            starts = start.weights
            for jacobians, initials in zip(now.jacobians(), start.jacobians(), strict=True):
                add_products(covariance, jacobians)
                add_products(moved, {path: jacobians[path] - initials[path] for path in found})
    n = len(x)
    return {
        path: record(
            weights[path],
            starts.get(path),
            covariance[path] / n,
            moved[path] / n if path in moved else None,
            kind,
        )
        for path in found
    }


def record(weight: Tensor, start: Tensor | None, K: Tensor, moved: Tensor | None, kind: Kind) -> NFA:
    """Compute the measures of one layer from W, W_0, K and the covariance of J - J_0, as far as they are known."""
    F, G = weight.T @ weight, sandwich(weight, K)
    centred = double = ptk = ratio = double_ratio = movement = math.nan
    if start is not None:
        change = weight - start
        Fc, Gc = change.T @ change, sandwich(change, K)
        overlap = _overlap(Fc, Gc)
        centred, ratio = correlation(Fc, Gc, kind), _quotient(overlap, _overlap(F, G))
        movement = _quotient(float(torch.linalg.vector_norm(change)), float(torch.linalg.vector_norm(weight)))
        if moved is not None:
            Gd = sandwich(change, moved)
            double, double_ratio = correlation(Fc, Gd, kind), _quotient(_overlap(Fc, Gd), overlap)
            ptk = correlation(start.T @ start, sandwich(start, moved), kind)
    return NFA(correlation(F, G, kind), centred, double, ptk, ratio, double_ratio, movement, kind)


def check_state(module: nn.Module, initial: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the parameters and buffers of a state, or raise an error that says how it differs from the module's."""
    if not isinstance(initial, Mapping):
        raise InputTypeError(f"initial must be a state_dict of the module. Got {type(initial).__name__}.")
    own = module.state_dict()
    missing = [name for name in own if name not in initial]
    if missing:
        raise InputError(
            f"initial must be a state_dict of the module, with all its entries. It lacks {', '.join(map(repr, missing[:6]))}"
            f"{' and more' if len(missing) > 6 else ''}: it has {', '.join(map(repr, list(initial)[:6]))}."
        )
    state: dict[str, Tensor] = {}
    names = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    names |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    for name, value in own.items():
        given = initial[name]
        if name not in names:  # extra state, such as the gain of a parametrisation
            if isinstance(value, Tensor) and not (isinstance(given, Tensor) and torch.equal(value, given)):
                raise InputError(
                    f"initial must agree with the module in {name!r}, which is not a parameter. Got {shown(given)}, "
                    f"which differs from the module's {shown(value)}."
                )
            continue
        if not isinstance(given, Tensor) or given.shape != value.shape:
            got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise InputError(f"initial[{name!r}] must have shape {tuple(value.shape)}, as the module's. Got {got}.")
        if given.dtype != value.dtype or given.device != value.device:
            raise InputTypeError(
                f"initial[{name!r}] must be {value.dtype} on {value.device}, as the module's. "
                f"Got {given.dtype} on {given.device}."
            )
        state[name] = given.detach()
    return state


def _overlap(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())


def _quotient(top: float, bottom: float) -> float:
    return top / bottom if bottom else math.nan
