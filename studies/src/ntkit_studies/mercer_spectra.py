"""How fast the eigenvalues of tangent kernels on the sphere fall with the degree of the harmonics.

Networks learn harmonics of degree k in a time of order k^p on the sphere in p dimensions. Run it with
``python -m ntkit_studies mercer_spectra``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ntkit import infinite_width
from ntkit.diagnostics import mercer
from ntkit.errors import InputError
from ntkit.plots import new_figure, plot_eigenvalue_decay

from ._networks import blank
from .plots import Picture, Section, Table
from .skeleton import Comparison, Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "QUICK", "Network", "Settings", "Spectrum", "main", "run"]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    dimensions
        p of the spheres.
    hidden
        Numbers of hidden layers.
    degrees
        The highest degree.
    first
        The decay is fitted from this degree on.
    b_std
        Gain of the biases, for networks that have them.
    """

    dimensions: tuple[int, ...] = (2, 3, 4, 5)
    hidden: tuple[int, ...] = (1, 3)
    degrees: int = 120
    first: int = 30
    b_std: float = 0.5

    def __post_init__(self) -> None:
        check_at_least(self, 2, "dimensions")
        check_at_least(self, 1, "hidden", "first")
        if self.degrees < self.first + 4:
            raise InputError(
                f"degrees must be at least first + 4 = {self.first + 4}, to fit a decay. Got {self.degrees}."
            )


QUICK = Settings(dimensions=(2, 3), degrees=60, first=20)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(dimensions=(2, 3, 4, 5, 6), hidden=(1, 2, 3, 5), degrees=200)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class Network:
    """One cell: a fully connected ReLU network on the sphere of one dimension."""

    dimension: int
    hidden: int
    bias: bool


@dataclass(frozen=True)
class Spectrum:
    """The result for one kernel.

    Attributes
    ----------
    eigenvalues
        Eigenvalues by degree from 0 on; zero if they are below their error.
    exponent
        q of the decay k^-q.
    drift
        Difference between fits to the lower and to the upper half of the degrees: the effect of lower orders on the exponent.
    vanishing
        Number of odd degrees above one without eigenvalue.
    error
        Largest error of an eigenvalue.
    """

    eigenvalues: tuple[float, ...]
    exponent: float
    drift: float
    vanishing: int
    error: float


def cells(run: Run[Settings]) -> list[Network]:
    """Return one cell per dimension, depth and bias."""
    settings = run.settings
    return [Network(p, h, b) for p in settings.dimensions for h in settings.hidden for b in (True, False)]


def compute(run: Run[Settings], cell: Network) -> Spectrum:
    """Decompose one kernel."""
    settings = run.settings

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for number in range(cell.hidden):
            layers += [nn.Linear(8 if number else cell.dimension, 8, bias=cell.bias), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(8, 1, bias=cell.bias))

    ntk = infinite_width(blank(make), b_std=settings.b_std if cell.bias else 0.0).ntk
    found = mercer(ntk, cell.dimension, settings.degrees)
    shown = torch.where(found.vanishing, 0.0, found.eigenvalues)
    middle = round((settings.first * settings.degrees) ** 0.5)
    whole, lower, upper = (
        found.decay_exponent(first, last)
        for first, last in ((settings.first, settings.degrees), (settings.first, middle), (middle, settings.degrees))
    )
    vanishing = int(found.vanishing[3::2].sum())
    return Spectrum(tuple(shown.tolist()), whole, abs(upper - lower), vanishing, float(found.error.max()))


def report(results: Results[Settings, Network, Spectrum]) -> Report:
    """Draw the spectra and set the exponents beside the theory's."""
    settings = results.settings
    by_network = {
        _name(cell): [found for other, found in results.values.items() if _name(other) == _name(cell)]
        for cell in results.values
    }
    exponents = Table(
        ["network", *(f"p = {p}" for p in settings.dimensions)],
        [[name, *(f"{one.exponent:.3f} ± {one.drift:.3f}" for one in found)] for name, found in by_network.items()],
        f"Exponent of the decay, fitted to degrees {settings.first} to {settings.degrees}",
    )
    vanishing = Table(
        ["network", "odd degrees without eigenvalue", "largest error of an eigenvalue"],
        [
            [
                name,
                ", ".join(dict.fromkeys(str(one.vanishing) for one in found)),
                f"{max(one.error for one in found):.0e}",
            ]
            for name, found in by_network.items()
        ],
        f"Of the {len(range(3, settings.degrees + 1, 2))} odd degrees from 3 on, in all dimensions",
    )
    figure = new_figure(7.5, 4.8)
    shown = {
        f"p = {cell.dimension}": found.eigenvalues
        for cell, found in results.values.items()
        if cell.bias and cell.hidden == settings.hidden[0]
    }
    plot_eigenvalue_decay(figure.subplots(), np.arange(settings.degrees + 1), shown)
    picture = Picture(
        figure,
        f"Eigenvalues by degree, ReLU networks with {settings.hidden[0]} hidden layer(s) and biases: straight lines are "
        "power laws, whose slope is minus the dimension.",
        "Falling lines on logarithmic axes, one per dimension, steeper for larger ones.",
    )
    comparisons = [
        Comparison(
            f"{_name(cell)}, p = {cell.dimension}: exponent", (found.exponent,), float(cell.dimension), found.drift
        )
        for cell, found in results.values.items()
        if cell.bias
    ]
    return Report(
        "Spectra of tangent kernels on the sphere",
        "Eigenvalues of the exact tangent kernels of ReLU networks on spheres, by degree of the spherical harmonics. The theory "
        "(Chen and Xu 2020, in Golikov et al. 2022, section 6.2) has a decay k^-p. Fitted exponents of finite degrees differ "
        "from it by lower orders; the error is how much fits to lower and to higher degrees differ. Without biases, one hidden "
        "layer has no odd harmonics above the first.",
        [Section("Spectra", [exponents, vanishing, picture])],
        comparisons,
    )


def _name(cell: Network) -> str:
    return f"{cell.hidden} hidden, {'biases' if cell.bias else 'no biases'}"


EXPERIMENT = experiment_of(
    globals(),
    name="mercer_spectra",
    title="Decay of the eigenvalues of tangent kernels on the sphere, by dimension, depth and bias.",
    reproduces="Golikov et al. 2022, section 6.2 (Chen and Xu 2020)",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
