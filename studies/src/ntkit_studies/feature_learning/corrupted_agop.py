"""The ansatz rests on the eigenvectors of K: figure 1 of Beaglehole et al. 2024.

A network learns the chain monomial; its matrices F = W^T W and G = W^T K W resemble one another and the expected gradient outer
product, and W^T Q W, with the eigenvectors of K replaced by random ones, does not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ntkit.features import correlation, ptk_covariance, randomize_eigenvectors
from ntkit.plots import figure_matrices

from .._by_seed import Seed, by_seed, mean_and_spread
from ..skeleton import Claim, Comparison, Run, Size, check_at_least
from ._networks import build_mlp, draw_split, train, weight_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]


@dataclass(frozen=True)
class Settings:
    """Figure 1; steps and learning rate are not given in the paper.

    Attributes
    ----------
    n, d, width, rank
        Training points, inputs, hidden units, rank of the task.
    scale
        s_0, of the first layer.
    lr, steps
        Of gradient descent.
    seeds
        How many draws of data and weights.
    """

    n: int = 384
    d: int = 32
    width: int = 128
    rank: int = 5
    scale: float = 0.01
    lr: float = 0.05
    steps: int = 800
    seeds: int = 10

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n", "d", "width", "rank", "steps", "seeds")


@dataclass(frozen=True)
class Record:
    """One network.

    Attributes
    ----------
    aligned, corrupted
        rho(F, G), and rho(F, W^T Q W).
    spread
        Standard deviation over mean of K's eigenvalues.
    matrices
        EGOP, F, G and W^T Q W; empty except for the first seed.
    """

    aligned: float
    corrupted: float
    spread: float
    matrices: dict[str, list[list[float]]]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Train one network and compare its matrices."""
    settings, seed = run.settings, cell.seed
    split = draw_split(settings.n, settings.d, settings.rank, seed)
    net = build_mlp([settings.d, settings.width, settings.width, 1], [settings.scale, 1.0, 1.0], 1000 + seed)
    train(net, split, settings.steps, torch.optim.SGD(net.parameters(), settings.lr).step)
    K = ptk_covariance(net, split.x, layers=["0"])["0"].double()
    W = weight_at(net, "0").double()
    Q = randomize_eigenvectors(K, torch.Generator().manual_seed(2000 + seed))
    F, G, corrupted = W.T @ W, W.T @ K @ W, W.T @ Q @ W
    values = torch.linalg.eigvalsh(K)
    matrices = {"EGOP": split.task.egop, "NFM": F, "AGOP": G, "random eigenvectors": corrupted}
    return Record(
        correlation(F, G),
        correlation(F, corrupted),
        float(values.std(correction=0) / values.mean()),
        {name: matrix.tolist() for name, matrix in matrices.items()} if seed == run.seed else {},
    )


def comparisons(settings: Settings, records: list[Record]) -> list[Comparison]:
    """Compare the numbers of the figure's caption with ours; steps and learning rate are ours."""
    return [
        Comparison("rho(F, G)", tuple(record.aligned for record in records), 0.93),
        Comparison("rho(F, W^T Q W)", tuple(record.corrupted for record in records), 0.53),
        Comparison("std / mean of K's eigenvalues", tuple(record.spread for record in records), 5.9),
    ]


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Ask what section 2.2 says of the figure."""
    aligned, corrupted = ([getattr(record, name) for record in records] for name in ("aligned", "corrupted"))
    # "Greatly" is more than half of the paper's own 0.40.
    greatly = bool(np.mean(aligned) - np.mean(corrupted) >= 0.2)
    holds = greatly and all(a > b for a, b in zip(aligned, corrupted, strict=True))
    found = f"{mean_and_spread(aligned)} to {mean_and_spread(corrupted)}"
    return [
        Claim("rho(F, G) to rho(F, W^T Q W)", "random eigenvectors greatly reduce the correlation (2.2)", found, holds)
    ]


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw the matrices of the first seed."""
    return {"figure1": figure_matrices(records[0].matrices)}


_QUICK = Settings(n=64, d=8, width=16, steps=40, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "corrupted_agop",
    "The neural feature ansatz rests on the eigenvectors of the pre-activation tangent kernel.",
    "Beaglehole et al. 2024, Fig. 1",
    grows=("n", "d", "width", "steps"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
