"""A photograph regressed on the coordinates of its pixels, with and without Fourier features.

Kernel regression with exact tangent kernels and finite networks, after Tancik et al. 2020: PSNR on held-out pixels against
training time, and spectra. Run it with ``python -m ntkit_studies image_regression``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import Kernel, infinite_width, initialize, parametrize_ntk
from ntkit.diagnostics import learning_times
from ntkit.errors import InputError
from ntkit.layers import FourierFeatures
from ntkit.plots import new_figure, plot_eigenvalue_decay

from ._networks import blank
from ._photographs import default_photographs, photograph
from .plots import Picture, Section, Table, plot_spread
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "MAPPINGS", "QUICK", "Mapping", "Regressed", "Settings", "main", "run"]

MAPPINGS = ("none", "basic", "positional", "gaussian", "positional, far too high")
_SHOWN = 60  # eigenvalues kept of each spectrum


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    photographs
        Names; astronaut, text and coffee need scikit-image, china and flower do not.
    side
        Of the images; every second pixel along each axis is known.
    hidden
        Hidden layers of the networks.
    bias_gains
        Gains of their biases to choose from, by pixels held out of the known ones; the library's default, 0, is one.
    features
        Gaussian frequencies.
    levels
        Positional frequencies of each coordinate.
    gaussian_scales, positional_scales
        To choose from in the same way.
    far_scale
        A positional scale far above the frequency of the grid.
    steps
        Steps of gradient descent at half the largest stable rate, at which the PSNR is measured; the choice of scales is
        made for the last.
    network_width, network_steps, network_rate
        Of the finite networks, trained by Adam; no steps, no networks.
    """

    photographs: tuple[str, ...] = field(default_factory=default_photographs)
    side: int = 128
    hidden: int = 3
    bias_gains: tuple[float, ...] = (0.0, 0.1, 1.0)
    features: int = 256
    levels: int = 8
    gaussian_scales: tuple[float, ...] = (3.0, 5.0, 8.0)
    positional_scales: tuple[float, ...] = (8.0, 16.0, 32.0)
    far_scale: float = 1024.0
    steps: tuple[float, ...] = (10.0, 100.0, 1e3, 1e4, 1e5)
    network_width: int = 128
    network_steps: int = 300
    network_rate: float = 0.01

    def __post_init__(self) -> None:
        check_at_least(self, 8, "side")
        check_at_least(self, 1, "hidden", "features", "levels", "gaussian_scales", "positional_scales", "network_width")
        check_at_least(self, 0, "network_steps")
        if self.steps[-1] <= 0:
            raise InputError(f"the last of steps must be positive. Got {self.steps}.")
        if not self.photographs or self.side % 2:
            raise InputError(
                f"photographs must be at least one, and side even. Got {self.photographs} and {self.side}."
            )


QUICK = Settings(
    side=32, features=64, levels=4, gaussian_scales=(2.0, 4.0), positional_scales=(4.0, 8.0), network_width=32, network_steps=50
)  # fmt: skip


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(network_width=512, network_steps=2000, network_rate=0.003)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class Mapping:
    """One cell: how coordinates are embedded, and whether a finite network or the exact kernel is trained."""

    name: str
    finite: bool


@dataclass(frozen=True)
class Regressed:
    """One mapping on all images.

    Attributes
    ----------
    scale
        Of the embedding, chosen on held-out known pixels; None where there is none.
    bias
        Gain of the biases, chosen likewise.
    steps
        At which the PSNR was measured.
    psnr
        In dB on the unknown pixels, by steps and image.
    converged
        PSNR of training to the end, by image; None for finite networks.
    eigenvalues
        Of the Gram matrix over its trace, by rank, at ``ranks``; empty for finite networks.
    ranks
        From 1 on.
    """

    scale: float | None
    bias: float
    steps: tuple[float, ...]
    psnr: tuple[tuple[float, ...], ...]
    converged: tuple[float, ...] | None
    eigenvalues: tuple[float, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class _Choice:
    """A mapping with its scale and the gain of the biases after it."""

    name: str
    scale: float | None
    bias: float


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor
    choices: dict[str, _Choice] = field(default_factory=dict)


def cells(run: Run[Settings]) -> list[Mapping]:
    """Return one cell per mapping for kernels, and one per mapping for networks."""
    finite = [Mapping(name, True) for name in MAPPINGS[:4]] if run.settings.network_steps else []
    return [Mapping(name, False) for name in MAPPINGS] + finite


def prepare(run: Run[Settings]) -> _Shared:
    """Load the images, split their pixels, and choose scales and gains by a fifth of the known ones."""
    settings = run.settings
    side = settings.side
    images = torch.stack([photograph(name, side).reshape(-1) for name in settings.photographs], dim=1)
    axis = torch.arange(side, dtype=torch.float64) / side
    points = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).reshape(-1, 2)
    known = torch.zeros(side, side, dtype=torch.bool)
    known[::2, ::2] = True
    chosen = known.reshape(-1)
    mean = images[chosen].mean(0)  # networks need not learn the mean grey
    shared = _Shared(run, points[chosen], images[chosen] - mean, points[~chosen], images[~chosen] - mean)
    for number, name in enumerate(MAPPINGS, 1):
        shared.choices[name] = _chosen(shared, name)
        run.progress("choices", number, len(MAPPINGS))
    return shared


def compute(shared: _Shared, cell: Mapping) -> Regressed:
    """Regress every image by the exact kernel or by a network."""
    choice = shared.choices[cell.name]
    return _train_network(shared, choice) if cell.finite else _regress(shared, choice)


def _regress(shared: _Shared, choice: _Choice) -> Regressed:
    settings, kernel = shared.run.settings, _kernel(shared, choice)
    found = learning_times(kernel(shared.x), None, shared.y)
    values = found.eigenvalues
    cross = kernel(shared.x_test, shared.x) @ found.vectors
    learnable = values > 0

    def psnr(t: float) -> tuple[float, ...]:
        # (1 - e^(-lambda t)) / lambda, the weights of gradient flow; at half the stable rate a step is a time 1 / lambda_max.
        grown = torch.where(learnable, -torch.expm1(-values * t) / torch.where(learnable, values, 1.0), 0.0)
        return _psnr(cross @ (grown[:, None] * found.targets), shared.y_test)

    ranks = np.unique(np.geomspace(1, len(values), _SHOWN).round().astype(int))
    return Regressed(
        choice.scale,
        choice.bias,
        settings.steps,
        tuple(psnr(steps / float(values[0])) for steps in settings.steps),
        psnr(math.inf),
        tuple((values[ranks - 1] / values.sum()).tolist()),
        tuple(ranks.tolist()),
    )


def _train_network(shared: _Shared, choice: _Choice) -> Regressed:
    settings, width, name = shared.run.settings, shared.run.settings.network_width, choice.name
    embed, inputs = _embedding(shared, choice)
    body = _body(inputs, width, settings.hidden, len(settings.photographs), torch.float32)
    generator = torch.Generator().manual_seed(shared.run.seed + 2)
    initialize(parametrize_ntk(body, b_std=choice.bias), generator=generator)
    x, y, x_test = (
        embed(_inputs(name, shared.x)).float(),
        shared.y.float(),
        embed(_inputs(name, shared.x_test)).float(),
    )
    optimizer = torch.optim.Adam(body.parameters(), lr=settings.network_rate)
    measured, rows = [], []
    moments = {round(settings.network_steps * share) for share in (0.03, 0.1, 0.3, 1.0)} - {0}
    for step in range(1, settings.network_steps + 1):
        optimizer.zero_grad()
        (body(x) - y).square().mean().backward()
        optimizer.step()
        if step in moments:
            measured.append(float(step))
            with torch.no_grad():
                rows.append(_psnr(body(x_test).double(), shared.y_test))
        shared.run.progress(f"network, {name}", step, settings.network_steps)
    return Regressed(choice.scale, choice.bias, tuple(measured), tuple(rows), None, (), ())


def _chosen(shared: _Shared, name: str) -> _Choice:
    """Choose scale and gain by a fifth of the known pixels, for a ridge that stops where the last step does."""
    settings = shared.run.settings
    scales: tuple[float | None, ...] = {
        "positional": settings.positional_scales,
        "gaussian": settings.gaussian_scales,
        "positional, far too high": (settings.far_scale,),
    }.get(name, (None,))
    order = torch.randperm(len(shared.x), generator=torch.Generator().manual_seed(shared.run.seed + 1))
    held, used = order[: len(order) // 5], order[len(order) // 5 :]
    choices = [_Choice(name, scale, bias) for scale in scales for bias in settings.bias_gains]
    scores = []
    for choice in choices:
        kernel = _kernel(shared, choice)
        gram = kernel(shared.x[used])
        # The mean of the row sums is close to the largest eigenvalue, whose vector is nearly constant.
        gram.diagonal().add_(float(gram.sum() / len(gram)) / settings.steps[-1])
        weights = torch.cholesky_solve(shared.y[used], torch.linalg.cholesky(gram))
        scores.append(float(np.mean(_psnr(kernel(shared.x[held], shared.x[used]) @ weights, shared.y[held]))))
    return choices[int(np.argmax(scores))]


def _embedding(shared: _Shared, choice: _Choice) -> tuple[nn.Module, int]:
    settings, name, scale = shared.run.settings, choice.name, choice.scale
    if name == "none":
        return nn.Identity(), 2
    if name == "gaussian":
        generator = torch.Generator().manual_seed(shared.run.seed)
        layer = FourierFeatures(2, "gaussian", settings.features, scale, generator)
    elif name == "basic":
        layer = FourierFeatures(2, "basic")
    else:
        layer = FourierFeatures(2, "positional", settings.levels, scale)
    return layer, layer.out_features


def _inputs(name: str, x: Tensor) -> Tensor:
    """Return coordinates as the network takes them: without an embedding, from -1 to 1."""
    return 2 * x - 1 if name == "none" else x


def _body(inputs: int, width: int, hidden: int, outputs: int, dtype: torch.dtype) -> nn.Module:
    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for number in range(hidden):
            layers += [nn.Linear(width if number else inputs, width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, outputs))

    return blank(make, dtype)


@dataclass(frozen=True)
class _OfCoordinates(Kernel):
    """A kernel of embedded coordinates."""

    kernel: Kernel
    name: str

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.kernel(_inputs(self.name, x1), None if x2 is None else _inputs(self.name, x2))

    def diag(self, x: Tensor) -> Tensor:
        return self.kernel.diag(_inputs(self.name, x))


def _kernel(shared: _Shared, choice: _Choice) -> Kernel:
    embed, inputs = _embedding(shared, choice)
    net = nn.Sequential(embed, _body(inputs, 1, shared.run.settings.hidden, 1, torch.float64))
    return _OfCoordinates(infinite_width(net, b_std=choice.bias).ntk, choice.name)


def _psnr(found: Tensor, expected: Tensor) -> tuple[float, ...]:
    """Return -10 log10 of the mean squared error of each image, whose values lie between 0 and 1."""
    return tuple((-10 * torch.log10((found - expected).square().mean(0))).tolist())


def report(results: Results[Settings, Mapping, Regressed]) -> Report:
    """Set the mappings side by side."""
    settings = results.settings
    kernels = {cell.name: found for cell, found in results.values.items() if not cell.finite}
    networks = {cell.name: found for cell, found in results.values.items() if cell.finite}
    parts: list[str | Table | Picture] = []
    for number, image in enumerate(settings.photographs):
        rows = []
        for name, found in kernels.items():
            assert found.converged is not None
            chosen = "–" if found.scale is None else f"{found.scale:g}"
            values = [f"{row[number]:.2f}" for row in found.psnr]
            rows.append([name, chosen, f"{found.bias:g}", *values, f"{found.converged[number]:.2f}"])
        parts.append(
            Table(
                ["kernel", "scale", "b_std", *(f"{s:g} steps" for s in settings.steps), "to the end"],
                rows,
                f"{image}: dB",
            )
        )
    figure = new_figure(11, 4.4)
    left, right = figure.subplots(1, 2)
    plot_spread(
        left,
        settings.steps,
        {name: np.array(found.psnr) - np.array(kernels["none"].psnr) for name, found in kernels.items()},
        "steps at half the largest stable rate",
        "PSNR on unknown pixels above none (dB)",
    )
    left.set_xscale("log")
    for name, found in kernels.items():
        plot_eigenvalue_decay(right, found.ranks, {name: found.eigenvalues}, xlabel="rank")
    parts.append(
        Picture(
            figure,
            "Left: PSNR above that of no mapping against training time, mean over the photographs and their extremes. Right: "
            "eigenvalues of the Gram matrix over its trace.",
            "Curves of gains in PSNR, and falling curves of eigenvalues, one per mapping.",
        )
    )
    sections = [Section("Exact kernels", parts)]
    if networks:
        moments = next(iter(networks.values())).steps
        rows = [
            [name, *(" / ".join(f"{value:.2f}" for value in row) for row in found.psnr)]
            for name, found in networks.items()
        ]
        header = ["network", *(f"{step:g} steps" for step in moments)]
        caption = f"dB of {' / '.join(settings.photographs)}; width {settings.network_width}, Adam at {settings.network_rate:g}"
        sections.append(Section("Finite networks", [Table(header, rows, caption)]))
    return Report(
        "Photographs from the coordinates of their pixels",
        f"Grey photographs of {settings.side} x {settings.side} pixels, every second one along each axis known; tangent kernels "
        f"of {settings.hidden} hidden ReLU layers, and networks. The error is that of the unknown pixels; scales and gains of "
        "biases are chosen on a fifth of the known ones.",
        sections,
    )


EXPERIMENT = experiment_of(
    globals(),
    name="image_regression",
    title="PSNR of photographs regressed on pixel coordinates against training time, by Fourier features.",
    reproduces="Golikov et al. 2022, Fig. 1 and image regression of Fig. 2 (Tancik et al. 2020), on other photographs",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
