"""An experiment of a few numbers, to test what all experiments share."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

from ntkit_studies.plots import Section, Table
from ntkit_studies.skeleton import Comparison, Experiment, Report, Results, Run, Size, check_at_least


@dataclass(frozen=True)
class Settings:
    """What is run.

    Attributes
    ----------
    widths
        Of the boxes, in 100 % of cases.
    factor, head
        What to multiply with, and what to wear.
    pair
        Two numbers.
    """

    widths: tuple[int, ...] = (1, 2, 3)
    factor: float = 2.0
    head: Literal["hat", "cap"] = "hat"
    pair: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "widths")


@dataclass(frozen=True)
class Cell:
    width: int
    draw: int


@dataclass(frozen=True)
class Product:
    value: float
    parts: tuple[float, ...]


computed: list[Cell] = []
stop_at: list[Cell] = []
lock = threading.Lock()


def sizes(size: Size, from_file: bool) -> Settings:
    return Settings(widths=(1,)) if size == "quick" else Settings()


def cells(run: Run[Settings]) -> list[Cell]:
    return [Cell(width, draw) for width in run.settings.widths for draw in range(2)]


def prepare(run: Run[Settings]) -> Run[Settings]:
    return run


def compute(run: Run[Settings], cell: Cell) -> Product:
    with lock:
        if cell in stop_at:
            raise KeyboardInterrupt
        computed.append(cell)
    value = run.settings.factor * cell.width + run.seed + 0.1 * cell.draw
    return Product(value, (1 / 3, value))


def report(results: Results[Settings, Cell, Product]) -> Report:
    rows = [[str(cell.width), f"{found.value:g}"] for cell, found in results.values.items()]
    values = tuple(found.value for found in results.values.values())
    comparisons = [Comparison("value", values, 4.0)]
    return Report("Toy", "A toy.", [Section("Values", [Table(["width", "value"], rows)])], comparisons)


EXPERIMENT = Experiment(
    name="toy",
    title="Products.",
    reproduces="nothing",
    sizes=sizes,
    cells=cells,
    prepare=prepare,
    compute=compute,
    report=report,
    embedded="digits",
    files="a file",
    selects=("widths",),
)


def cells_of_default() -> list[Cell]:
    return [Cell(width, draw) for width in (1, 2, 3) for draw in range(2)]
