"""Graph networks of infinite width on graphs of different sizes: accuracy by 10-fold cross-validation, and seconds.

    python benchmarks/graphs.py --data graphs.npz [--store] [MUTAG PTC_MR]

The file holds ``NAME/edges`` (m, 2), ``NAME/graph`` and ``NAME/node_label`` of each node, and ``NAME/y``. The network adds up
each node's neighbours and itself, applies two linear layers with ReLU, does so in one or two blocks, and adds up all nodes (Du et
al. 2019). A support vector machine on its NTK is scored on the ten folds of one stratified split; in each, the number of blocks,
whether the kernel is normalised, and C are chosen by a five-fold split of the nine training folds alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import product

import numpy as np
import torch
from history import Table, add_store, publish, started
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC
from torch import Tensor, nn

import ntkit

BLOCKS = (1, 2)
COSTS = tuple(10.0**k for k in range(-2, 5))
PAPER = {"MUTAG": "90.0", "PTC_MR": "67.9", "PROTEINS": "75.6", "NCI1": "84.2"}  # Du et al. 2019, table 1


class GraphNetwork(nn.Module):
    """Sum over neighbours and the node itself, two layers, again; then the sum over all nodes."""

    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        sizes = [channels] + [8] * (blocks - 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU()) for size in sizes
        )
        self.head = nn.Linear(8, 1)

    def forward(self, h: Tensor, adjacency: Tensor) -> Tensor:
        """Return (n, 1) from features (n, nodes, channels) and adjacency matrices (n, nodes, nodes)."""
        loops = adjacency + torch.eye(adjacency.shape[1], dtype=adjacency.dtype)
        for block in self.blocks:
            h = block(loops @ h)
        return self.head(h.sum(1))


def load(path: str, name: str) -> tuple[list[tuple[Tensor, Tensor]], np.ndarray]:
    """Return graphs as edges and one-hot features, and their classes."""
    with np.load(path) as data:
        edges, graph, label, y = (data[f"{name}/{key}"].astype(int) for key in ("edges", "graph", "node_label", "y"))
    x = nn.functional.one_hot(torch.from_numpy(label - label.min())).double()
    counts = np.bincount(graph)
    starts, owner = np.cumsum(counts) - counts, graph[edges[:, 0]]
    inside = [torch.from_numpy(edges[owner == i] - start) for i, start in enumerate(starts)]
    return [(inside[i], x[start : start + counts[i]]) for i, start in enumerate(starts)], y


def accuracy(grams: list[np.ndarray], y: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation over the folds, in per cent."""
    scores = []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=0).split(y, y):
        inner = StratifiedKFold(5, shuffle=True, random_state=0)
        tried = [
            (cross_val_score(SVC(C=c, kernel="precomputed"), gram[np.ix_(train, train)], y[train], cv=inner).mean(), i)
            for i, (gram, c) in enumerate(product(grams, COSTS))
        ]
        gram, c = list(product(grams, COSTS))[max(tried, key=lambda pair: (pair[0], -pair[1]))[1]]
        machine = SVC(C=c, kernel="precomputed").fit(gram[np.ix_(train, train)], y[train])
        scores.append(100 * machine.score(gram[np.ix_(test, train)], y[test]))
    return float(np.mean(scores)), float(np.std(scores))


def measure(path: str, name: str) -> list[str]:
    """Return the row of a data set."""
    graphs, y = load(path, name)
    grams, seconds = [], 0.0
    for blocks in BLOCKS:
        start = time.process_time()
        gram = ntkit.infinite_width(GraphNetwork(graphs[0][1].shape[1], blocks)).ntk(graphs).numpy()
        seconds += time.process_time() - start
        scale = np.sqrt(np.diag(gram))
        grams += [gram / gram.diagonal().mean(), gram / np.outer(scale, scale)]
    mean, deviation = accuracy(grams, y)
    sizes = [len(x) for _, x in graphs]
    scores = [f"{mean:.1f}", f"{deviation:.1f}", PAPER[name]]
    return [name, str(len(graphs)), f"{min(sizes)} to {max(sizes)}", *scores, f"{seconds:.0f}"]


def main() -> int:
    """Score the data sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("names", nargs="*", default=["MUTAG", "PTC_MR"])
    add_store(parser)
    arguments = parser.parse_args()
    start = started()
    header = ["data", "graphs", "nodes", "accuracy", "deviation over folds", "Du et al.", "CPU seconds"]
    caption = (
        "Accuracy in per cent by nested 10-fold cross-validation, and CPU seconds of both kernels, float64, 1 thread."
    )
    rows = [measure(arguments.data, name) for name in arguments.names]
    publish("graphs", [Table(header, rows, caption)], start, arguments.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
