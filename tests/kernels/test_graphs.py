"""Graphs read as features and adjacency matrices."""

from types import SimpleNamespace

import pytest
import torch

from ntkit._src.kernels._graphs import graph_arguments, graphs_in
from ntkit.errors import InputError, InputTypeError

X = torch.arange(6, dtype=torch.float64).reshape(3, 2)


def test_rows_of_the_adjacency_matrix_receive():
    features, adjacency = graph_arguments(torch.tensor([[0, 1], [0, 1], [2, 1]]), X, "g")
    assert features is X
    assert adjacency.tolist() == [[0, 0, 0], [2, 0, 1], [0, 0, 0]]
    assert adjacency.dtype == torch.float64


def test_weights_and_nodes_in_any_order():
    data = SimpleNamespace(
        x=X,
        edge_index=torch.tensor([[0, 1], [2, 1]]),
        batch=torch.tensor([1, 0, 1]),
        edge_weight=torch.tensor([0.5, 3.0]),
    )
    (first, own), (second, other) = graphs_in(data, "g")
    assert first.tolist() == [[2, 3]] and own.tolist() == [[3.0]]
    assert second.tolist() == [[0, 1], [4, 5]] and other.tolist() == [[0, 0], [0.5, 0]]


class Dgl:
    def __init__(self, **ndata):
        self.ndata = ndata

    def edges(self):
        return torch.tensor([0, 2]), torch.tensor([1, 2])

    def batch_num_nodes(self):
        return torch.tensor([2, 1])


def test_the_interface_of_dgl():
    (first, own), (second, other) = graphs_in(Dgl(feat=X, label=X[:, 0]), "g")
    assert torch.equal(first, X[:2]) and own.tolist() == [[0, 0], [1, 0]]
    assert torch.equal(second, X[2:]) and other.tolist() == [[1]]
    assert len(graphs_in(Dgl(h=X), "g")) == 2
    with pytest.raises(InputError, match="feat"):
        graphs_in(Dgl(a=X, b=X), "g")
    assert graphs_in(object(), "g") is None


@pytest.mark.parametrize(
    ("edges", "x", "error", "message"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), X, InputError, r"edges\.T"),
        (torch.zeros(3, 2), X, InputError, "integers"),
        (torch.tensor([[0, 3]]), X, InputError, "from 0 to 2"),
        (torch.tensor([[0, 1]]), X[:, 0], InputTypeError, "one_hot"),
        (torch.tensor([[0, 1]]), X.long(), InputTypeError, "one_hot"),
    ],
)  # fmt: skip
def test_bad_graphs(edges, x, error, message):
    with pytest.raises(error, match=message):
        graph_arguments(edges, x, "g")


def test_edges_stay_inside_a_graph():
    with pytest.raises(InputError, match="between different graphs"):
        graphs_in(SimpleNamespace(x=X, edge_index=torch.tensor([[0], [1]]), batch=torch.tensor([0, 1, 1])), "g")
