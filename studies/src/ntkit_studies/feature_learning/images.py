"""Feature learning on images: figures 13 and 14 of Beaglehole et al. 2024, on handwritten digits by default.

Figure 14: a network of four hidden layers, standard training against Speed Limited Optimization. Figure 13: two classes, Adam;
the Pearson correlation of the diagonals of F and G, and with the eigenvectors of K replaced by random ones. The paper uses SVHN
and CelebA; ``load_svhn().save("svhn.npz")`` and ``load_celeba(folder, "Eyeglasses").save("faces.npz")`` of ntkit.datasets write
the files for ``--data``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ntkit.features import Recorder, SpeedLimited, correlation, ptk_covariance, randomize_eigenvectors
from ntkit.plots import figure_matrices, new_figure, plot_against_steps

from .._by_seed import Seed, by_seed, mean_and_spread
from .._images import FILES
from ..skeleton import Claim, Run, Size, check_at_least
from ._image_files import ImageRows, load_image_rows, standardize
from ._networks import build_mlp, layer_paths, weight_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]

METHODS = ("standard", "SLO")
_MEASURES = ("uncentred", "centred", "centred_ratio")


@dataclass(frozen=True)
class Settings:
    """Figures 13 and 14, reduced.

    Attributes
    ----------
    n, width, hidden, steps, every
        Of figure 14: images, hidden units, hidden layers, steps, steps between measurements. The paper: 4000 and 3000.
    lr, slo_lr, speeds, eps
        Learning rates of either method; speeds of the first layer and of all others (the paper gives those of the first three).
    pairs, pair_width, pair_scale, epochs, adam_lr, batch, draws
        Of figure 13: images, hidden units, s_0, epochs, learning rate, batch size, draws of random eigenvectors. The paper: 7500
        and 500.
    classes
        The two classes of figure 13.
    seeds
        How many draws of data and weights.
    """

    n: int = 1000
    width: int = 256
    hidden: int = 4
    steps: int = 1000
    every: int = 50
    lr: float = 0.2
    slo_lr: float = 0.3
    speeds: tuple[float, float] = (2.5, 0.4)
    eps: float = 0.2
    pairs: int = 1000
    pair_width: int = 128
    pair_scale: float = 0.02
    epochs: int = 60
    adam_lr: float = 1e-4
    batch: int = 128
    draws: int = 10
    classes: tuple[int, int] = (0, 8)
    seeds: int = 1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n", "width", "hidden", "steps", "every", "seeds")
        check_at_least(self, 1, "pairs", "pair_width", "epochs", "batch", "draws")
        check_at_least(self, 0, "classes")


@dataclass(frozen=True)
class Record:
    """One seed.

    Attributes
    ----------
    steps
        Of the measurements of figure 14.
    curves
        By method, the measures of the first layer along training.
    losses
        By method, the training loss.
    diagonals
        By method the diagonals of F and G of the first layer at the end; ``"F"``, ``"G"``, ``"random"`` of figure 13.
    aligned, corrupted
        Pearson correlations of the diagonals of figure 13: of F with G, and with W^T Q W for every draw.
    shape
        Of the images.
    """

    steps: list[int]
    curves: dict[str, dict[str, list[float]]]
    losses: dict[str, list[float]]
    diagonals: dict[str, list[float]]
    aligned: float
    corrupted: list[float]
    shape: list[int]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Run both figures on one draw of images and weights."""
    settings, seed = run.settings, cell.seed
    images = load_image_rows(run.data)
    steps, curves, losses, diagonals = _speeds(settings, images, seed)
    aligned, corrupted, own = _diagonals(settings, images, seed)
    return Record(steps, curves, losses, {**diagonals, **own}, aligned, corrupted, list(images.shape))


def _speeds(
    settings: Settings, images: ImageRows, seed: int
) -> tuple[list[int], dict[str, dict[str, list[float]]], dict[str, list[float]], dict[str, list[float]]]:
    drawn = images.balanced(settings.n, seed)
    x, c = standardize(drawn.x), int(drawn.labels.max()) + 1
    y = nn.functional.one_hot(drawn.labels, c).float()
    steps: list[int] = []
    curves: dict[str, dict[str, list[float]]] = {}
    losses: dict[str, list[float]] = {}
    diagonals: dict[str, list[float]] = {}
    for method in METHODS:
        widths = [x.shape[1], *[settings.width] * settings.hidden, c]
        net = build_mlp(widths, [1.0] * (len(widths) - 1), 1000 + seed)
        first, *others = layer_paths(net)
        speeds = {first: settings.speeds[0], **dict.fromkeys(others, settings.speeds[1])}
        optimizer: torch.optim.Optimizer = (
            torch.optim.SGD(net.parameters(), settings.lr)
            if method == "standard"
            else SpeedLimited(net.named_parameters(), settings.slo_lr, speeds, settings.eps)
        )
        recorder = Recorder(net, x, every=settings.every, layers=[first])
        for _ in range(settings.steps):
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(train=loss)
        history = recorder.history
        steps = history.steps.tolist()
        curves[method] = {name: history.measures[first][name].tolist() for name in _MEASURES}
        losses[method] = history.losses["train"].tolist()
        W, K = _first_layer(net, x)
        diagonals[f"F, {method}"], diagonals[f"G, {method}"] = _diagonal(W, None).tolist(), _diagonal(W, K).tolist()
    return steps, curves, losses, diagonals


def _diagonals(settings: Settings, images: ImageRows, seed: int) -> tuple[float, list[float], dict[str, list[float]]]:
    classes = settings.classes if len(images.labels.unique()) > 2 else (0, 1)
    drawn = images.balanced(settings.pairs, seed, classes)
    x, y = drawn.x, 2.0 * drawn.labels.float()[:, None] - 1
    net = build_mlp(
        [x.shape[1], settings.pair_width, settings.pair_width, 1], [settings.pair_scale, 1.0, 1.0], 2000 + seed
    )
    optimizer = torch.optim.Adam(net.parameters(), settings.adam_lr)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(x), generator=generator).split(settings.batch):
            optimizer.zero_grad()
            (net(x[rows]) - y[rows]).square().mean().backward()
            optimizer.step()
    W, K = _first_layer(net, x)
    F, G = _diagonal(W, None), _diagonal(W, K)
    random = [
        _diagonal(W, randomize_eigenvectors(K, torch.Generator().manual_seed(3000 + draw)))
        for draw in range(settings.draws)
    ]
    return (
        correlation(F, G, kind="pearson"),
        [correlation(F, other, kind="pearson") for other in random],
        {"F": F.tolist(), "G": G.tolist(), "random": random[0].tolist()},
    )


def _first_layer(net: nn.Sequential, x: Tensor) -> tuple[Tensor, Tensor]:
    return weight_at(net, "0").double(), ptk_covariance(net, x, layers=["0"])["0"].double()


def _diagonal(W: Tensor, K: Tensor | None) -> Tensor:
    """Return the diagonal of W^T K W, K None for the identity."""
    return (W * (W if K is None else K @ W)).sum(0)


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Compare with the figures."""
    ends = {m: [record.curves[m]["uncentred"][-1] for record in records] for m in METHODS}
    ratios = {m: [record.curves[m]["centred_ratio"][-1] for record in records] for m in METHODS}
    aligned, corrupted = [r.aligned for r in records], [float(np.mean(r.corrupted)) for r in records]
    each = [value for record in records for value in record.corrupted]
    return [
        Claim(
            "Figure 14: first layer, uncentred at the end, standard and SLO",
            "SLO can improve the strength of the UC-NFA (SVHN)",
            f"{mean_and_spread(ends['standard'])} and {mean_and_spread(ends['SLO'])}",
            all(b > a for a, b in zip(ends["standard"], ends["SLO"], strict=True)),
        ),
        Claim(
            "Figure 14: centred / uncentred at the end, standard and SLO",
            "close to 1 with SLO; the same result holds for SVHN (4.2)",
            f"{mean_and_spread(ratios['standard'])} and {mean_and_spread(ratios['SLO'])}",
            bool(np.mean(ratios["SLO"]) >= 0.9),
        ),
        Claim(
            "Figure 13: Pearson correlation of the diagonals of F and G",
            "similar to each other, 0.91 (CelebA)",
            mean_and_spread(aligned),
            bool(np.mean(aligned) >= 0.8),
        ),
        Claim(
            "Figure 13: the same with random eigenvectors",
            "reduced to 0.04 (CelebA)",
            f"{mean_and_spread(corrupted)} (mean of {settings.draws} draws from {min(each):.3f} to {max(each):.3f})",
            bool(np.mean(corrupted) <= 0.2),
        ),
    ]


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw the diagonals as images, and figure 14's curves."""
    record = records[0]
    figure = new_figure(10, 3.2)
    for ax, name in zip(figure.subplots(1, 3), _MEASURES, strict=True):
        plot_against_steps(ax, record.steps, {m: [r.curves[m][name] for r in records] for m in METHODS}, name)
        ax.legend(frameon=False)
    shape = tuple(record.shape)
    both = {name: np.diag(record.diagonals[name]) for method in METHODS for name in (f"F, {method}", f"G, {method}")}
    own = {name: np.diag(record.diagonals[name]) for name in ("F", "G", "random")}
    return {
        "figure14": figure,
        "figure14-diagonals": figure_matrices(both, image_shape=shape),
        "figure13": figure_matrices(own, image_shape=shape),
    }


_QUICK = Settings(
    n=40, width=16, hidden=2, steps=20, every=10, lr=0.01, pairs=40, pair_width=8, epochs=2, batch=20, draws=2, seeds=2
)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; scikit-learn has 174 digits of the class 8."""
    if size == "quick":
        return _QUICK
    if size == "full":
        return Settings(n=4000, steps=3000, pairs=7500, epochs=500, seeds=3) if from_file else Settings(pairs=300)
    return Settings() if from_file else Settings(pairs=300)


EXPERIMENT = by_seed(
    globals(),
    "feature_images",
    "The neural feature ansatz on images, with standard training and with Speed Limited Optimization.",
    "Beaglehole et al. 2024, Figs 13 and 14",
    embedded="digits",
    files=FILES,
    grows=("n", "steps", "pairs", "epochs"),
    paper={"n": 4_000, "steps": 3_000, "pairs": 7_500, "epochs": 500},
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
