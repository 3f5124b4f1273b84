"""Cells and results of the experiment on recursive feature machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["Accuracies", "Course", "Fit", "Kernel", "TableCell", "Task", "Values"]

Task = Literal["product", "low rank", "tangent kernel"]
Kernel = Literal["laplace", "gaussian", "ntk"]


@dataclass(frozen=True)
class Fit:
    """A cell: one machine on one draw of a task.

    Attributes
    ----------
    task
        y = x0 x1; y = x0 x1 1{x5 > 0}; or y = x0 x1 at the size of the tangent kernel.
    kernel
        Of the regression.
    power
        M = AGOP^power with the fixed settings; None for those that ``RFMRegressor()`` chooses on the training points.
    seed
        Of the data.
    """

    task: Task
    kernel: Kernel
    power: float | None
    seed: int


@dataclass(frozen=True)
class Course:
    """What a machine learned.

    Attributes
    ----------
    errors
        Mean squared test error with M = I and after each update.
    variance
        Of the test targets.
    diagonal
        Of M after the updates in use, its largest entry 1, shape (d,).
    used
        Updates in use: the last, or as many as were chosen.
    chosen
        The settings chosen, in words; empty where they are fixed.
    """

    errors: tuple[float, ...]
    variance: float
    diagonal: tuple[float, ...]
    used: int
    chosen: str

    @property
    def scores(self) -> list[float]:
        """R^2 on the test points with M = I and after each update."""
        return [1 - error / self.variance for error in self.errors]

    @property
    def error(self) -> float:
        """The mean squared test error after the updates in use."""
        return self.errors[self.used]

    @property
    def score(self) -> float:
        """R^2 on the test points after the updates in use."""
        return self.scores[self.used]


@dataclass(frozen=True)
class TableCell:
    """A cell: one table of the file."""

    table: str


@dataclass(frozen=True)
class Accuracies:
    """Two classifiers on a table.

    Attributes
    ----------
    rfm, ntk
        Test accuracy on each fold, of ``RFMClassifier()`` and of ``NTKClassifier(tune="loo")``.
    """

    rfm: tuple[float, ...]
    ntk: tuple[float, ...]


Values = Mapping[Fit | TableCell, Course | Accuracies]
"""Results by cell."""
