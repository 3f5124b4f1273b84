"""
Graphs of different sizes
=========================

A graph network is an ordinary module of two arguments: the features of the nodes and the adjacency matrix. A list of
graphs, each its edges and its features, goes straight into the kernel. Each pair of graphs is computed at its own size:
nothing is padded.
"""

import torch
from torch import nn

import ntkit


class GraphNetwork(nn.Module):
    """Sum aggregation with self-loops, a small network after each, and the sum over all nodes (Du et al. 2019)."""

    def __init__(self, channels: int, blocks: int = 2, width: int = 64) -> None:
        super().__init__()
        sizes = [channels] + [width] * blocks
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(size, width), nn.ReLU()) for size in sizes[:-1])
        self.head = nn.Linear(width, 1)

    def forward(self, h: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        """Return (n, 1) from features (n, nodes, channels) and adjacency matrices (n, nodes, nodes)."""
        loops = adjacency + torch.eye(adjacency.shape[1], dtype=adjacency.dtype)
        for block in self.blocks:
            h = block(loops @ h)
        return self.head(h.sum(1))


# %%
# Rings and paths of three to eight nodes, whose nodes know nothing but that they are there.


def graph(nodes: int, ring: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the edges in both directions, shape (m, 2), and the features (nodes, 1)."""
    first = torch.arange(nodes if ring else nodes - 1)
    edges = torch.stack([first, (first + 1) % nodes], 1)
    return torch.cat([edges, edges.flip(1)]), torch.ones(nodes, 1, dtype=torch.float64)


graphs = [graph(nodes, ring) for nodes in range(3, 9) for ring in (False, True)]
rings = torch.tensor([-1.0, 1.0], dtype=torch.float64).repeat(6)

kernel = ntkit.infinite_width(GraphNetwork(1), b_std=1.0).ntk
gram = kernel(graphs)
print(gram.shape)

# %%
# Kernel regression on graphs of 3, 4, 6 and 8 nodes tells paths and rings of 5 and 7 nodes apart.

nodes = torch.arange(3, 9).repeat_interleave(2)
test = (nodes == 5) | (nodes == 7)
weights = torch.linalg.solve(gram[~test][:, ~test], rings[~test])
print(gram[test][:, ~test] @ weights, rings[test])
