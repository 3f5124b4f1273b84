"""What comes before the first random layer: a function of each input by itself."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, fx, nn

from ntkit.errors import Problem, UnsupportedLayerError

from ._graph import Untraceable, prefix_module
from ._places import path_of

__all__ = ["checked_prefix"]


def checked_prefix(graph: fx.GraphModule, node: fx.Node, example: Tensor, what: str) -> nn.Module | None:
    """Return the module that computes a node from the input, in float64; None for the input itself.

    ``what`` names the operation. Refused: what draws random numbers or mixes the inputs of a batch.
    """
    prefix = prefix_module(graph, node)
    if prefix is None:
        return None
    prefix = copy.deepcopy(prefix).eval()
    whole = prefix(example.clone())
    if not torch.equal(whole.nan_to_num(), prefix(example.clone()).nan_to_num()):
        reason = "what comes before the first layer draws random numbers, or changes with every call"
        raise UnsupportedLayerError((Problem(path_of(node), what, reason, "add noise to the data beforehand"),))
    try:
        alone = torch.cat([prefix(row.clone()) for row in example.split(1)])
    except RuntimeError as error:
        raise Untraceable("what comes before the first layer works for one size of the batch only") from error
    if not torch.allclose(whole, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
        reason = "what comes before the first layer mixes the inputs of a batch, so there is no kernel of two inputs"
        remedy = "standardise the data beforehand, with statistics of the training set"
        raise UnsupportedLayerError((Problem(path_of(node), what, reason, remedy),))
    return prefix.double()
