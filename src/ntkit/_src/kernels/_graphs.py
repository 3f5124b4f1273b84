"""Graphs as the arguments of a forward: node features and the adjacency matrix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ntkit._src.common import check_tensor, shown
from ntkit.errors import InputError, InputTypeError


@runtime_checkable
class IndexedGraph(Protocol):
    """One graph, or several with the number of each node's graph in ``batch``, as PyTorch Geometric has them."""

    x: Tensor  # (nodes, channels)
    edge_index: Tensor  # (2, edges), from and to


@runtime_checkable
class EdgeListGraph(Protocol):
    """One graph or several, as DGL has them."""

    ndata: Mapping[str, Tensor]  # of which "feat" or the only entry holds the features

    def edges(self) -> tuple[Tensor, Tensor]:
        """Return where edges begin and end."""

    def batch_num_nodes(self) -> Tensor:
        """Return the number of nodes of each graph."""


def graph_arguments(edges: Any, features: Any, name: str) -> tuple[Tensor, Tensor]:
    """Return the features (nodes, channels) and A (nodes, nodes) of a graph given by edges (m, 2), from and to.

    A[i, j] counts the edges from j to i, so that ``A @ h`` adds up what arrives at each node.
    """
    for part, value in (("edges", edges), ("features", features)):
        check_tensor(f"{part} of {name}", value)
    if edges.is_floating_point() or edges.ndim != 2 or edges.shape[1] != 2:
        hint = " Write edges.T." if edges.ndim == 2 and len(edges) == 2 else ""
        raise InputError(
            f"the edges of {name} must be integers of shape (m, 2), from and to. Got {shown(edges)}.{hint}"
        )
    return _dense(edges.T, features, None, name)


def graphs_in(value: Any, name: str) -> list[tuple[Tensor, Tensor]] | None:
    """Return the graphs in an object of PyTorch Geometric or DGL, each as features and A; None for other objects."""
    weights = None
    if isinstance(value, IndexedGraph):
        edges, x, number = value.edge_index, value.x, getattr(value, "batch", None)
        weights = getattr(value, "edge_weight", None)
    elif isinstance(value, EdgeListGraph):
        found = dict(value.ndata)
        if "feat" not in found and len(found) != 1:
            raise InputError(f"{name} must hold its node features in ndata['feat']. Got {sorted(found)}.")
        edges, x = torch.stack(value.edges()), found.get("feat", next(iter(found.values())))
        counts = value.batch_num_nodes()
        number = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    else:
        return None
    for part, tensor in (("node features", x), ("edges", edges)):
        check_tensor(f"the {part} of {name}", tensor)
    if number is None:
        return [_dense(edges, x, weights, name)]
    order = torch.argsort(number, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    counts = torch.bincount(number)
    starts = counts.cumsum(0) - counts
    owner = number[edges[0]]
    if bool((number[edges[1]] != owner).any()):
        raise InputError(f"{name} has edges between different graphs. Expected edges inside each graph.")
    made = []
    for graph, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
        own = owner == graph
        local = place[edges[:, own]] - start
        made.append(_dense(local, x[order[start : start + count]], None if weights is None else weights[own], name))
    return made


def _dense(edges: Tensor, features: Tensor, weights: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    if features.ndim != 2 or not features.is_floating_point() or features.numel() == 0:
        raise InputTypeError(
            f"the node features of {name} must be floating-point numbers of shape (nodes, channels). Got {shown(features)}. "
            "For labels write torch.nn.functional.one_hot(labels, n).double(); for none torch.ones(nodes, 1)."
        )
    nodes = len(features)
    if edges.numel() and not (int(edges.min()) >= 0 and int(edges.max()) < nodes):
        found = f"{int(edges.min())} to {int(edges.max())}"
        raise InputError(
            f"the edges of {name} must name nodes from 0 to {nodes - 1}, as it has features of. Got {found}."
        )
    values = features.new_ones(edges.shape[1]) if weights is None else weights.to(features).flatten()
    begin, end = edges.long()
    return features, features.new_zeros(nodes, nodes).index_put((end, begin), values, accumulate=True)
