"""What an embedding, or a sine activation, does to the spectrum of a tangent kernel on a circle.

The one-dimensional experiment of Tancik et al. 2020, and the gains of Dupuis and Jacot 2021. Run it with
``python -m ntkit_studies fourier_features_1d``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import Kernel, infinite_width, solve
from ntkit.plots import new_figure, plot_eigenvalue_decay

from ._networks import blank
from .methods import frequency_course
from .plots import Picture, Section, Table
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "QUICK", "Kind", "Settings", "Spectrum", "main", "run"]

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    points
        Training points on the circle, a power of two; as many again between them are tested.
    powers
        Amplitudes j^-power of the frequencies j of the embedding; a negative number keeps only the first frequency.
    sine_gains
        Gains of the weights in front of the sine, which its frequency omega multiplies.
    bias_gains
        Gains of the biases there.
    hidden
        Hidden layers.
    decay
        The signal has random coefficients of size f^-decay at frequency f.
    signals
        How many random signals.
    steps
        Of gradient descent at half the largest stable learning rate, for what is learnt in finite time.
    """

    points: int = 128
    powers: tuple[float, ...] = (-1.0, 1.5, 1.0, 0.5, 0.0)
    sine_gains: tuple[float, ...] = (1.0, 3.0, 10.0)
    bias_gains: tuple[float, ...] = (0.0, 1.0)
    hidden: int = 2
    decay: float = 1.0
    signals: int = 20
    steps: float = 1000.0

    def __post_init__(self) -> None:
        check_at_least(self, 8, "points")
        check_at_least(self, 1, "hidden", "signals")


QUICK = Settings(points=32, signals=3)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    return {"quick": QUICK, "default": Settings(), "full": Settings(points=512, signals=100, hidden=3)}[size]


@dataclass(frozen=True)
class Kind:
    """One cell: a ReLU network behind an embedding, or a network of sines behind the first frequency.

    Attributes
    ----------
    activation
        "relu" or "sine".
    power
        Of the embedding's amplitudes.
    gain, bias
        Of the weights and biases.
    """

    activation: str
    power: float
    gain: float
    bias: float

    def __str__(self) -> str:
        if self.activation == "sine":
            return f"sine, w {self.gain:g}, b {self.bias:g}"
        return "ReLU, first frequency" if self.power < 0 else f"ReLU, amplitudes j^-{self.power:g}"


@dataclass(frozen=True)
class Spectrum:
    """The result for one kernel.

    Attributes
    ----------
    eigenvalues
        By frequency from 0 to half the training points, over the trace; zero where they are below rounding.
    test_error
        Root mean square error between the training points, trained to the end, over the signals' root mean square.
    learnt
        How many of the frequencies from 0 to half the training points have less than half left after the steps.
    """

    eigenvalues: tuple[float, ...]
    test_error: float
    learnt: int


class _Ladder(nn.Module):
    """Embeds a coordinate as j^-power cos(2 pi j x), j^-power sin(2 pi j x), j = 1, ..., count."""

    numbers: Tensor
    amplitudes: Tensor

    def __init__(self, count: int, power: float) -> None:
        super().__init__()
        numbers = torch.arange(1, count + 1, dtype=torch.float64)
        self.register_buffer("numbers", numbers)
        self.register_buffer("amplitudes", numbers ** -max(power, 0.0))

    def forward(self, x: Tensor) -> Tensor:
        phase = 2 * math.pi * x * self.numbers
        return torch.cat([self.amplitudes * torch.cos(phase), self.amplitudes * torch.sin(phase)], dim=-1)


class _Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def cells(run: Run[Settings]) -> list[Kind]:
    """Return one cell per embedding, and per gains of the sine."""
    settings = run.settings
    relu = [Kind("relu", power, math.sqrt(2), 0.1) for power in settings.powers]
    return relu + [Kind("sine", -1.0, w, b) for w in settings.sine_gains for b in settings.bias_gains]


def compute(run: Run[Settings], cell: Kind) -> Spectrum:
    """Return the spectrum of one kernel, and what it learns."""
    settings = run.settings
    n, kernel = settings.points, _kernel(cell, settings)
    x = torch.arange(2 * n, dtype=torch.float64)[:, None] / (2 * n)
    train, test = x[::2], x[1::2]
    gram = kernel(train)
    waves = torch.fft.rfft(gram[0]).real  # the kernel is a function of x - x': its eigenvectors are waves
    signals = _signals(settings, run.seed)
    found = kernel(test, train) @ solve(gram, signals[::2], ridge=1e-6).value
    error = (found - signals[1::2]).square().mean().sqrt() / signals[1::2].square().mean().sqrt()
    # White noise has every frequency; half the largest stable rate makes a step a time of 1 / lambda_max.
    noise = torch.randn(n, generator=torch.Generator().manual_seed(run.seed), dtype=torch.float64)
    left = frequency_course(kernel, noise, settings.steps / float(waves.max())).left[0]
    return Spectrum(
        tuple(torch.where(waves > _ROUNDING * waves.max(), waves / float(gram.trace()), 0.0).tolist()),
        float(error),
        int((left[: n // 2 + 1] < 0.5).sum()),
    )


def _kernel(cell: Kind, settings: Settings) -> Kernel:
    count = 1 if cell.power < 0 else settings.points // 2
    act = nn.ReLU if cell.activation == "relu" else _Sine

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for number in range(settings.hidden):
            layers += [nn.Linear(8 if number else 2 * count, 8), act()]
        return nn.Sequential(*layers, nn.Linear(8, 1))

    net = nn.Sequential(_Ladder(count, cell.power), blank(make, torch.float64))
    overrides = {f"1.{2 * settings.hidden}": {"w_std": 1.0, "b_std": 0.0}}
    return infinite_width(net, w_std=cell.gain, b_std=cell.bias, overrides=overrides).ntk


def _signals(settings: Settings, seed: int) -> Tensor:
    """Draw periodic signals at all points, shape (2 points, signals), of frequencies that the training points resolve."""
    n, generator = settings.points, torch.Generator().manual_seed(seed + 1)
    waves = torch.zeros(n + 1, settings.signals, dtype=torch.complex128)
    frequencies = torch.arange(1, n // 2, dtype=torch.float64)
    drawn = torch.randn(len(frequencies), settings.signals, 2, generator=generator, dtype=torch.float64)
    waves[1 : n // 2] = torch.view_as_complex(drawn) * frequencies[:, None] ** -settings.decay
    signals: Tensor = torch.fft.irfft(waves, n=2 * n, dim=0)
    return signals


def report(results: Results[Settings, Kind, Spectrum]) -> Report:
    """Draw the spectra beside what they learn."""
    settings = results.settings
    half = settings.points // 2
    picked = [f for f in (1, 4, 16, 64, 256) if f < half]
    rows = [
        [
            str(cell),
            *(f"{found.eigenvalues[f]:.1e}" for f in picked),
            str(found.learnt),
            f"{found.test_error:.4f}",
        ]
        for cell, found in results.values.items()
    ]
    figure = new_figure(11, 4.6)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, activation in zip(axes, ("relu", "sine"), strict=True):
        shown = {
            str(cell): found.eigenvalues for cell, found in results.values.items() if cell.activation == activation
        }
        plot_eigenvalue_decay(ax, np.arange(half + 1), shown, xlabel="frequency")
    return Report(
        "Embeddings and spectra on a circle",
        f"Exact tangent kernels of networks with {settings.hidden} hidden layers on {settings.points} points of a circle: "
        f"eigenvalues by frequency over the trace, how many of the {half + 1} frequencies gradient descent learns half of in "
        f"{settings.steps:g} steps, and the error between the training points for signals whose coefficients fall as "
        f"f^-{settings.decay:g}. Flat spectra learn high frequencies fast; too flat ones do not generalise. A network of sines "
        "without biases is odd and never learns even frequencies.",
        [
            Section(
                "Spectra",
                [
                    Table(
                        ["kernel", *(f"frequency {f}" for f in picked), "learnt", "test error"],
                        rows,
                        f"Test error relative to the signal, {settings.signals} signals, trained to the end",
                    ),
                    Picture(
                        figure,
                        "Eigenvalues against frequency: left of ReLU networks behind embeddings, right of sine networks.",
                        "Falling curves on logarithmic axes, flatter for embeddings with higher frequencies and larger gains.",
                    ),
                ],
            )
        ],
    )


EXPERIMENT = experiment_of(
    globals(),
    name="fourier_features_1d",
    title="Spectra of tangent kernels on a circle by embedding, and of sine networks by gains; what each learns.",
    reproduces="Golikov et al. 2022, section 6.2, behind Figs 1 and 2 (Tancik et al. 2020, Fig. 3; Dupuis and Jacot 2021)",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
