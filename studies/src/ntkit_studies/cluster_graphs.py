"""Kernels of higher order against the width: the exponents of Conjecture 1 in Golikov et al. 2022, section 3.

:math:`O_s(x_1, ..., x_s)`, the kernels of the tangent hierarchy, for random tanh networks of one hidden layer in the NTK
parametrisation, at s fixed points of the plane. The slope of log root mean square over networks against log width is compared
with half the exponent of E O_s^2, which clusters of contracted derivatives give (eqs 28 to 31).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from ntkit.plots import new_figure

from ._by_seed import Seed, by_seed
from .methods import higher_kernel, kernel_exponents
from .skeleton import Claim, Comparison, Run, Size, check_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]


@dataclass(frozen=True)
class Settings:
    """Orders, widths and networks.

    Attributes
    ----------
    orders
        s.
    widths
        Hidden units, at least two numbers.
    nets
        Networks for each width and seed.
    seeds
        How many draws of points and networks.
    """

    orders: tuple[int, ...] = (2, 3, 4, 5, 6)
    widths: tuple[int, ...] = (32, 64, 128, 256)
    nets: int = 200
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "orders", "widths", "nets", "seeds")


@dataclass(frozen=True)
class Record:
    """One seed.

    Attributes
    ----------
    sizes
        By order (``"3"``) the root mean square of O_s for each width.
    """

    sizes: dict[str, list[float]]


def network(parameters: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    """Compute f = a . tanh(W x) / sqrt(width)."""
    W, a = parameters
    output: Tensor = a @ torch.tanh(W @ x) / len(a) ** 0.5
    return output


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Measure every order at every width, on the same points."""
    settings, generator = run.settings, torch.Generator().manual_seed(cell.seed)
    points = torch.randn(max(settings.orders), 2, generator=generator, dtype=torch.float64)
    sizes: dict[str, list[float]] = {str(s): [] for s in settings.orders}
    for width in settings.widths:
        shapes = (settings.nets, width, 2), (settings.nets, width)
        drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
        for s in settings.orders:
            inputs = [*points[:s]]
            found = vmap(lambda W, a: higher_kernel(network, (W, a), inputs))(*drawn)  # noqa: B023
            sizes[str(s)].append(float(found.square().mean().sqrt()))
    return Record(sizes)


def _slopes(settings: Settings, records: list[Record], s: int) -> tuple[float, ...]:
    widths = np.log(settings.widths)
    return tuple(float(np.polyfit(widths, np.log(record.sizes[str(s)]), 1)[0]) for record in records)


def comparisons(settings: Settings, records: list[Record]) -> list[Comparison]:
    """Compare the slope of every order that shrinks with its exponent."""
    return [
        Comparison(f"exponent of the width in O_{s}", _slopes(settings, records, s), float(kernel_exponents(s).size))
        for s in settings.orders
        if s > 2
    ]


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Ask whether the conjecture's bounds hold: nothing shrinks more slowly, by more than a tenth of a power."""
    return [
        Claim(
            f"slope of O_{s}",
            f"O(n^{kernel_exponents(s).size}) (eq. 31)",
            ", ".join(f"{slope:.3f}" for slope in _slopes(settings, records, s)),
            float(np.mean(_slopes(settings, records, s))) <= float(kernel_exponents(s).size) + 0.1,
        )
        for s in settings.orders
    ]


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw the sizes of all orders against the width, and lines of the conjectured slope."""
    figure = new_figure(5.5, 4)
    ax = figure.subplots()
    for number, s in enumerate(settings.orders):
        means = np.exp(np.mean([np.log(record.sizes[str(s)]) for record in records], axis=0))
        ax.loglog(settings.widths, means, "o", color=f"C{number}", label=f"s = {s}")
        slope = float(kernel_exponents(s).size)
        ax.loglog(
            settings.widths, means[0] * (np.array(settings.widths) / settings.widths[0]) ** slope, color=f"C{number}"
        )
    ax.set_xlabel("width")
    ax.set_ylabel("root mean square of $O_s$")
    ax.legend(frameon=False)
    return {"Kernels of order s against the width; lines have the conjectured slopes": figure}


_QUICK = Settings(orders=(2, 3), widths=(8, 16), nets=20, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the paper has none."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "cluster_graphs",
    "Kernels of higher order shrink with the width as cluster graphs say.",
    "Golikov et al. 2022, section 3: Conjecture 1 and eqs 28 to 33",
    grows=("orders", "widths", "nets"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
