"""The early correlation, predicted from the data and observed: figure 3 of Beaglehole et al. 2024, and Gaussian inputs.

For the quadratic network f = a^T (Wx)^2 and the alignment-reversing data, over the balance gamma: the ratio of expectations from
free probability, the correlation in one network, and the plain average of the correlation over a few
networks. If A and B have one outlier each, the correlation is near 1 in every network while the ratio of expectations is not.

The paper's balance is to disrupt the correlation as gamma decreases. In our reading of its data few draws are disrupted, at any
gamma below 1: in the stored run the medians over draws are above 0.99 at every gamma, 87 of 110 points are above 0.95, and below
gamma = 1 the rank correlation of gamma with the mean over draws is 0.44 (p = 0.2; over single draws 0.27, p = 0.007). Prediction
and observation have a correlation of 0.96 over all points, and of 0.84 over the 23 that are not near 1.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

from ntkit.features import correlation
from ntkit.plots import new_figure

from .._by_seed import Seed, by_seed
from ..methods import predict_alignment
from ..skeleton import Claim, Run, Size, check_at_least
from ..tasks import alignment_reversing, chain_monomial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure", "quadratic_alignment"]

_ALIGNED, _CLOSE = 0.95, 0.05
"""Above the one, points say nothing: any prediction near 1 matches them. The other is what counts as a close match."""


@dataclass(frozen=True)
class Settings:
    """Figure 3.

    Attributes
    ----------
    size
        Points, inputs and hidden units.
    gammas
        Balances of the data.
    averaged
        Networks in the plain average; the first is the one observed.
    sampled
        Networks that the moments of R are averaged over.
    alphas, networks
        For Gaussian inputs: decays of the covariance (-1 is isotropic), and networks observed; measured with the first seed.
    rank
        Of the chain monomial on Gaussian inputs.
    seeds
        How many draws of data and weights.
    """

    size: int = 1024
    gammas: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    averaged: int = 3
    sampled: int = 30
    alphas: tuple[float, ...] = (-1.0, 1.0, 2.0)
    networks: int = 10
    rank: int = 5
    seeds: int = 10

    def __post_init__(self) -> None:
        check_at_least(self, 1, "size", "averaged", "sampled", "networks", "rank", "seeds")


@dataclass(frozen=True)
class Record:
    """One draw of the data.

    Attributes
    ----------
    predicted, observed, average
        By gamma: the ratio of expectations, the correlation in one network, its average over several.
    gaussian
        The prediction and the observed correlations by decay; empty except for the first seed.
    """

    predicted: list[float]
    observed: list[float]
    average: list[float]
    gaussian: dict[str, list[float]]


def quadratic_alignment(C: Tensor, B: Tensor, width: int, generator: torch.Generator) -> float:
    """Return rho(P, Q) of a random quadratic network, P = C R C and Q = C R B R C; C = X^T Y X and B = X^T X, shape (d, d)."""
    W = torch.randn(width, len(C), generator=generator, dtype=torch.float64) / width**0.5
    a = torch.randn(width, generator=generator, dtype=torch.float64)
    scaled = W * a[:, None]
    CR = C @ (scaled.T @ scaled)
    return correlation(CR @ C, CR @ B @ CR.T)


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Predict and observe on one draw of the data for every gamma."""
    settings, seed = run.settings, cell.seed
    n = settings.size
    predicted, observed, average = [], [], []
    moments = _moments(n, settings.sampled)
    for index, gamma in enumerate(settings.gammas):
        data = alignment_reversing(n, n, gamma, torch.Generator().manual_seed(100 * seed + index))
        predicted.append(predict_alignment(data.x, data.y, moments).rho)
        C, B = (data.x.T * data.y) @ data.x, data.x.T @ data.x
        each = [quadratic_alignment(C, B, n, torch.Generator().manual_seed(k)) for k in range(settings.averaged)]
        observed.append(each[0])
        average.append(float(np.mean(each)))
    return Record(predicted, observed, average, _gaussian(settings) if seed == 0 else {})


@cache
def _moments(size: int, nets: int) -> tuple[float, float, float, float]:
    """Return the moments of R averaged over networks, the same ones for all data."""
    point = torch.ones(1, size, dtype=torch.float64)
    generator = torch.Generator().manual_seed(9)
    return predict_alignment(point, point[0, :1], "sampled", nets=nets, generator=generator).moments


def _gaussian(settings: Settings) -> dict[str, list[float]]:
    found, n = {}, settings.size
    for alpha in settings.alphas:
        task = chain_monomial(n, n, settings.rank, torch.Generator().manual_seed(7), alpha=None if alpha < 0 else alpha)
        C, B = (task.x.T * task.y) @ task.x, task.x.T @ task.x
        each = [quadratic_alignment(C, B, n, torch.Generator().manual_seed(50 + k)) for k in range(settings.networks)]
        found[f"{alpha:g}"] = [predict_alignment(task.x, task.y).rho, *each]
    return found


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Compare with the figure."""
    predicted, observed, average = (
        np.array([getattr(record, name) for record in records]) for name in ("predicted", "observed", "average")
    )

    gaps = np.abs(predicted - observed)
    below = observed <= _ALIGNED
    disrupted = np.array(settings.gammas) < 1
    gammas, means = np.array(settings.gammas)[disrupted], observed.mean(0)[disrupted]
    rank, chance = _rank(gammas, means)
    points, points_chance = _rank(np.tile(gammas, len(records)), observed[:, disrupted].ravel())
    found = [
        Claim(
            f"single seeds: |predicted - observed| where the observed is below {_ALIGNED:g}, and their correlation",
            "closely match, across individual seeds (3.2)",
            f"{_mean(gaps[below]):.3f} on average, {gaps.max():.3f} at most; correlation {_together(predicted, observed):.3f} "
            f"over {gaps.size} points, of which {gaps.size - below.sum()} are above {_ALIGNED:g}, and "
            f"{_together(predicted[below], observed[below]):.3f} over the other {below.sum()}",
            bool(_mean(gaps[below]) <= _CLOSE),
        ),
        Claim(
            "means over seeds: largest |predicted - observed| over gamma, and their correlation",
            "closely match, for the average (3.2)",
            f"{np.abs(predicted.mean(0) - observed.mean(0)).max():.3f}; {_together(predicted.mean(0), observed.mean(0)):.3f}",
            bool(np.abs(predicted.mean(0) - observed.mean(0)).max() <= _CLOSE),
        ),
        Claim(
            "rank correlation of gamma with the means over seeds of the observed, gamma < 1",
            "disrupted as the balance gamma decreases (3.2)",
            f"{rank:.2f} (p = {chance:.2g}); over single points {points:.2f} (p = {points_chance:.2g}); "
            f"medians at least {np.median(observed, axis=0).min():.3f} at every gamma",
            rank > 0 and chance < 0.05,
        ),
        Claim(
            "correlation with the plain average over networks as the prediction",
            "-",
            f"{_together(average, observed):.3f}",
        ),
    ]
    for alpha, (rho, *each) in records[0].gaussian.items():
        where = "isotropic" if alpha == "-1" else f"alpha = {alpha}"
        gap = abs(rho - float(np.mean(each)))
        found.append(
            Claim(
                f"Gaussian inputs, {where}: |predicted - mean over {len(each)} networks|",
                "-",
                f"{gap:.4f} (predicted {rho:.4f}, observed {np.mean(each):.4f} ± {np.std(each):.4f})",
            )
        )
    return found


def _together(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the correlation; NaN where all points are the same."""
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) if a.size > 1 and np.ptp(a) and np.ptp(b) else float("nan")


def _rank(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float]:
    """Return the rank correlation and its p-value; NaN where there is none."""
    if a.size < 3 or not np.ptp(a) or not np.ptp(b):
        return float("nan"), float("nan")
    found = spearmanr(a, b)
    return float(found.statistic), float(found.pvalue)


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else 0.0


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw predictions and observations against gamma, seeds shaded, means in blue, and one against the other."""
    figure = new_figure(10, 3.4)
    left, middle, right = figure.subplots(1, 3)
    for ax, name in ((left, "predicted"), (middle, "observed")):
        rows = np.array([getattr(record, name) for record in records])
        for row in rows[:4]:
            ax.plot(settings.gammas, row, color="0.7")
        ax.plot(settings.gammas, rows.mean(0), color="blue")
        ax.set_xlabel("gamma")
        ax.set_title(name)
    for record in records:
        right.plot(record.predicted, record.observed, ".", color="0.3")
    right.plot([0, 1], [0, 1], linewidth=0.8, color="0.7")
    right.set_xlabel("predicted")
    right.set_ylabel("observed")
    return {"figure3": figure}


_QUICK = Settings(size=48, gammas=(0.2, 0.6, 1.0), averaged=2, sampled=3, networks=2, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "alignment_prediction",
    "The early correlation of the ansatz, predicted from the data and observed.",
    "Beaglehole et al. 2024, Fig. 3",
    grows=("size",),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
