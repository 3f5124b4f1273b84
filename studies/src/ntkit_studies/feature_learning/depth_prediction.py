"""The early correlation of deeper networks from the expected kernel: figure 8 of Beaglehole et al. 2024.

Two hidden layers, quadratic or ReLU, on the low-rank and the high-rank task with inputs of decaying covariance: rho(P, Q) of the
first layer with the kernel kappa of a finite network, and with its expectation at infinite width instead (appendix C, to
first order: kappa^2 becomes E[kappa]^2). Labels replace the residuals: the network's own output is taken as zero.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import Elementwise
from ntkit.features import correlation, expected_ptk, ptk
from ntkit.plots import new_figure

from .._by_seed import Seed, by_seed
from ..skeleton import Claim, Run, Size, check_at_least
from ..tasks import chain_monomial, high_rank_quadratic
from ._networks import build_mlp

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"quadratic": lambda: Elementwise(lambda z: z**2), "relu": nn.ReLU}
TASKS = ("low rank", "high rank")


@dataclass(frozen=True)
class Settings:
    """Figure 8.

    Attributes
    ----------
    size
        Points and inputs.
    widths
        Of the networks observed.
    rank
        Of the low-rank task.
    alphas
        Decays of the inputs' covariance.
    seeds
        How many draws of data and weights.
    """

    size: int = 128
    widths: tuple[int, ...] = (128, 1024)
    rank: int = 5
    alphas: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
    seeds: int = 2

    def __post_init__(self) -> None:
        check_at_least(self, 1, "size", "widths", "rank", "seeds")


@dataclass(frozen=True)
class Record:
    """One seed.

    Attributes
    ----------
    predicted
        By activation and task (``"relu/low rank"``), one number for each decay.
    observed
        By activation, task and width (``"relu/low rank/1024"``), one number for each decay.
    """

    predicted: dict[str, list[float]]
    observed: dict[str, list[float]]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Predict and observe for one draw of data and networks."""
    settings, seed = run.settings, cell.seed
    n = settings.size
    predicted: dict[str, list[float]] = {}
    observed: dict[str, list[float]] = {}
    for task in TASKS:
        for number, alpha in enumerate(settings.alphas):
            generator = torch.Generator().manual_seed(100 * seed + number)
            drawn = (
                chain_monomial(n, n, settings.rank, generator, alpha=alpha)
                if task == "low rank"
                else high_rank_quadratic(n, n, generator, alpha=alpha)
            )
            for name, activation in ACTIVATIONS.items():
                key = f"{name}/{task}"
                small = build_mlp([n, 8, 8, 1], [1.0] * 3, 0, activation).double()
                kappa = expected_ptk(small, drawn.x, w_std=1.0, layers=["0"])["0"]
                predicted.setdefault(key, []).append(_correlation(drawn.x, drawn.y, kappa))
                for width in settings.widths:
                    net = build_mlp([n, width, width, 1], [1.0] * 3, 1000 + seed, activation).double()
                    kappa = ptk(net, drawn.x, layers=["0"])["0"]
                    observed.setdefault(f"{key}/{width}", []).append(_correlation(drawn.x, drawn.y, kappa))
    return Record(predicted, observed)


def _correlation(x: Tensor, y: Tensor, kappa: Tensor) -> float:
    """Return rho(P, Q) with P = X^T D kappa D X and Q = X^T D kappa^2 D X."""
    DX = y[:, None] * x
    inner = kappa @ DX
    return correlation(DX.T @ inner, inner.T @ inner)


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Compare prediction and observation."""
    found, worst = [], {}
    for key in records[0].predicted:
        predicted = np.mean([record.predicted[key] for record in records], axis=0)
        for width in settings.widths:
            observed = np.mean([record.observed[f"{key}/{width}"] for record in records], axis=0)
            gaps = np.abs(predicted - observed)
            place = int(gaps.argmax())
            worst[key, width] = float(gaps[place])
            found.append(
                Claim(
                    f"{key}, width {width}: largest |predicted - observed| over alpha",
                    "qualitatively captures the behavior (C)",
                    f"{gaps[place]:.3f} (at alpha {settings.alphas[place]:g}: {predicted[place]:.3f}, {observed[place]:.3f})",
                    bool(gaps[place] <= 0.04),
                )
            )
    narrow, wide = min(settings.widths), max(settings.widths)
    for key in records[0].predicted:
        # The paper says it of the quadratic activation only.
        quoted = "more closely as the network approaches infinite width (C)" if key.startswith("quadratic") else "-"
        found.append(
            Claim(
                f"{key}: that gap at width {narrow} and at width {wide}",
                quoted,
                f"{worst[key, narrow]:.3f} and {worst[key, wide]:.3f}",
                worst[key, wide] < worst[key, narrow],
            )
        )
    for task in TASKS:
        both = [worst[f"{name}/{task}", wide] for name in ("quadratic", "relu")]
        found.append(
            Claim(
                f"{task}, width {wide}: that gap, quadratic and ReLU",
                "captures ReLU to a lesser extent (C)",
                " and ".join(f"{gap:.3f}" for gap in both),
                both[1] > both[0],
            )
        )
    return found


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw the correlation against alpha, observed dashed at the smaller and solid at the larger width."""
    figure = new_figure(8, 6)
    axes = figure.subplots(2, 2).ravel()
    for ax, key in zip(axes, records[0].predicted, strict=True):
        ax.plot(settings.alphas, np.mean([r.predicted[key] for r in records], axis=0), color="k", label="predicted")
        for width, line in zip(settings.widths, ("--", "-"), strict=False):
            mean = np.mean([r.observed[f"{key}/{width}"] for r in records], axis=0)
            ax.plot(settings.alphas, mean, line, color="C0", label=f"observed, k = {width}")
        ax.set_title(key, fontsize="medium")
        ax.set_xlabel("alpha")
    axes[0].legend(frameon=False)
    return {"figure8": figure}


_QUICK = Settings(size=24, widths=(16, 64), alphas=(0.0, 2.0), seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "depth_prediction",
    "The early correlation of the ansatz in deeper networks, from the expected kernel.",
    "Beaglehole et al. 2024, Fig. 8",
    grows=("size", "widths"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
