"""The shape of a beam drawn by a network: with and without an embedding that makes its kernel translation invariant.

The compliance of a density on a grid is minimised, the density being the output of a network at the grid's points (Dupuis
and Jacot 2021). Run it with ``python -m ntkit_studies topology_optimisation``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import infinite_width, initialize, parametrize_ntk
from ntkit.errors import InputError
from ntkit.layers import FourierFeatures
from ntkit.plots import new_figure

from ._compliance import Beam, with_volume
from ._networks import blank
from .plots import Picture, Section, Table
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EMBEDDINGS", "EXPERIMENT", "QUICK", "Design", "Embedding", "Settings", "main", "run"]

EMBEDDINGS = ("coordinates", "torus", "Gaussian features", "pixels")


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    nx, ny
        Elements of half the beam.
    volume
        Fraction of the area that is filled.
    steps
        Steps of Adam.
    rate
        Its learning rate.
    width
        Of the network's two hidden layers.
    scale
        Of the Gaussian frequencies, in periods over the height of the beam.
    draws
        Networks of each kind.
    """

    nx: int = 48
    ny: int = 16
    volume: float = 0.5
    steps: int = 150
    rate: float = 0.02
    width: int = 256
    scale: float = 1.0
    draws: int = 3

    def __post_init__(self) -> None:
        check_at_least(self, 2, "nx", "ny")
        check_at_least(self, 1, "steps", "width", "draws")
        if not 0 < self.volume < 1:
            raise InputError(f"volume must be between 0 and 1. Got {self.volume}.")


QUICK = Settings(nx=12, ny=4, steps=20, width=32, draws=1)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(nx=96, ny=32, steps=400, width=1024, draws=5)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class Embedding:
    """One cell: how the network reads a point; pixels are densities without a network."""

    name: str
    draw: int


@dataclass(frozen=True)
class Design:
    """One shape.

    Attributes
    ----------
    compliance
        At the end, smaller is stiffer.
    start
        Of the uniform density.
    course
        Compliance during the optimisation, at most 30 values, the last one at the end.
    grey
        Mean of 4 y (1 - y): 0 for a shape of only full and empty elements.
    spread
        Standard deviation of the tangent kernel's diagonal over the grid, relative to its mean: 0 is translation invariant.
        None for pixels.
    density
        Row by row from the bottom, two digits.
    """

    compliance: float
    start: float
    course: tuple[float, ...]
    grey: float
    spread: float | None
    density: tuple[float, ...]


def cells(run: Run[Settings]) -> list[Embedding]:
    """Return one cell per embedding and draw; pixels start from a uniform density and need no draws."""
    found = [Embedding(name, draw) for name in EMBEDDINGS[:-1] for draw in range(run.settings.draws)]
    return [*found, Embedding("pixels", 0)]


def compute(run: Run[Settings], cell: Embedding) -> Design:
    """Optimise one shape."""
    settings = run.settings
    beam = Beam(settings.nx, settings.ny)
    generator = torch.Generator().manual_seed(run.seed + 7919 * cell.draw)
    points = _points(settings)
    net, inputs = _network(cell.name, settings, generator), _inputs(cell.name, points)
    spread: float | None = None
    if cell.name != "pixels":
        diagonal = infinite_width(net).ntk.diag(inputs)
        spread = float(diagonal.std() / diagonal.mean())

    def give() -> Tensor:
        outputs: Tensor = net(inputs)
        return outputs[:, 0]

    optimizer = torch.optim.Adam(net.parameters(), lr=settings.rate)
    start, _ = beam.compliance(np.full(beam.elements, settings.volume))
    course = []
    for _ in range(settings.steps):
        pre = give()
        density, slope = with_volume(pre.detach().numpy(), settings.volume)
        value, gradient = beam.compliance(density)
        course.append(value)
        back = slope * (gradient - (slope * gradient).sum() / max(slope.sum(), 1e-300))
        optimizer.zero_grad()
        pre.backward(torch.from_numpy(back / start))
        optimizer.step()
    density, _ = with_volume(give().detach().numpy(), settings.volume)
    value, _ = beam.compliance(density)
    shown = [*course[:: max(1, len(course) // 28)], value]
    grey = float((4 * density * (1 - density)).mean())
    return Design(value, start, tuple(shown), grey, spread, tuple(np.round(density, 2).tolist()))


def _points(settings: Settings) -> Tensor:
    """Return the middles of the elements in units of the beam's height, shape (elements, 2)."""
    row, column = np.divmod(np.arange(settings.nx * settings.ny), settings.nx)
    return torch.tensor(np.stack([column + 0.5, row + 0.5], axis=1) / settings.ny)


def _inputs(name: str, points: Tensor) -> Tensor:
    """Return the points as the network takes them; on the torus the longer side goes half around, so that ends do not meet."""
    return points / (2 * points.max()) if name == "torus" else points


class _Pixels(nn.Module):
    """A free number for each point."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(count, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.values


def _network(name: str, settings: Settings, generator: torch.Generator) -> nn.Module:
    if name == "pixels":
        return _Pixels(settings.nx * settings.ny)
    embed: nn.Module = nn.Identity()
    inputs = 2
    if name == "torus":
        embed = FourierFeatures(2, "basic")
        inputs = 4
    elif name == "Gaussian features":
        embed = FourierFeatures(2, "gaussian", size=64, scale=settings.scale, generator=generator)
        inputs = 128
    width = settings.width
    body = blank(
        lambda: nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        ),
        torch.float64,
    )  # fmt: skip
    return nn.Sequential(embed, initialize(parametrize_ntk(body, b_std=0.1), generator=generator))


def report(results: Results[Settings, Embedding, Design]) -> Report:
    """Show the shapes and their compliance."""
    settings = results.settings
    rows, figure = [], new_figure(9, 1.4 + 1.5 * len(EMBEDDINGS))
    axes = figure.subplots(len(EMBEDDINGS), 2, squeeze=False)
    for (picture, curve), name in zip(axes, EMBEDDINGS, strict=True):
        own = [found for cell, found in results.values.items() if cell.name == name]
        values, first = np.array([one.compliance for one in own]), own[0]
        rows.append(
            [
                name,
                f"{values.mean() / first.start:.4f}",
                f"{values.min() / first.start:.4f} to {values.max() / first.start:.4f}",
                f"{np.mean([one.grey for one in own]):.3f}",
                "–" if first.spread is None else f"{first.spread:.1e}",
            ]
        )
        picture.imshow(
            np.array(first.density).reshape(settings.ny, settings.nx), origin="lower", cmap="gray_r", vmin=0, vmax=1
        )
        picture.set_title(name, fontsize=9)
        picture.set_axis_off()
        for one in own:
            curve.plot(np.linspace(0, settings.steps, len(one.course)), np.array(one.course) / one.start)
        curve.set_yscale("log")
    return Report(
        "Shapes drawn by networks",
        f"Half of a beam of {settings.nx} by {settings.ny} elements with a load in its middle, {settings.volume:.0%} filled, "
        f"optimised by {settings.steps} steps of Adam. A network draws the density from coordinates, from their torus embedding "
        "or from Gaussian Fourier features; pixels are free densities. Pixels have no filter, and may form checkerboards "
        "that bilinear elements take for stiffer than they are.",
        [
            Section(
                "Compliance",
                [
                    Table(
                        [
                            "density from",
                            "compliance / uniform",
                            "from the best to the worst",
                            "grey",
                            "spread of the kernel",
                        ],
                        rows,
                        "Mean over networks; smaller is stiffer. The last column is the standard deviation of the tangent "
                        "kernel's diagonal over the grid, relative to its mean: zero for translation-invariant embeddings.",
                    ),
                    Picture(
                        figure,
                        "The first shape of each kind, and the compliance over that of the uniform density along the way.",
                        "Rows of a drawn beam and its falling compliance, one row per embedding.",
                    ),
                ],
            )
        ],
    )


EXPERIMENT = experiment_of(
    globals(),
    name="topology_optimisation",
    title="Compliance of a beam whose density a network draws, with and without translation-invariant embeddings.",
    reproduces="Dupuis and Jacot 2021, in Golikov et al. 2022, section 6.2: the method on a small beam",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
