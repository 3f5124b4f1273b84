"""Matrix completion with tangent kernels, compared with matrix factorisation, neighbours and imputers.

Golikov et al. 2022, section 6.1.3, and Radhakrishnan et al. 2021. Run it with
``python -m ntkit_studies matrix_completion --data u.data``; MovieLens-100k is at grouplens.org, under a licence that does
not allow shipping it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import InputError, MissingDependencyError

from ._completion_methods import METHODS, complete
from ._ratings import FILES, draw_ratings, load_ratings, split_ratings
from .plots import Section, Table
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "Cell", "Score", "Settings", "main", "run"]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    splits
        Random splits into training and test ratings.
    test_share
        Of the ratings, held out for testing.
    users, items
        Of the drawn matrix, without a file.
    methods
        By name; those whose package is not installed are left out of the table, and it says so.
    """

    splits: int = 3
    test_share: float = 0.2
    users: int = 300
    items: int = 150
    methods: tuple[str, ...] = tuple(METHODS)

    def __post_init__(self) -> None:
        check_at_least(self, 1, "splits")
        check_at_least(self, 20, "users", "items")
        unknown = [name for name in self.methods if name not in METHODS]
        if unknown:
            raise InputError(f"methods must be some of {', '.join(map(repr, METHODS))}. Got {unknown[0]!r}.")


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    return {"quick": Settings(1, users=60, items=40), "default": Settings(), "full": Settings(10)}[size]


@dataclass(frozen=True)
class Cell:
    """One method on one split."""

    method: str
    split: int


@dataclass(frozen=True)
class Score:
    """The result of a method.

    Attributes
    ----------
    error
        The root mean square error on the test ratings; None where the method's package is not installed.
    chosen
        What the method chose on held-out training ratings.
    """

    error: float | None
    chosen: str


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    ratings: NDArray[Any]


def cells(run: Run[Settings]) -> list[Cell]:
    """Return one cell per method and split."""
    return [Cell(method, split) for split in range(run.settings.splits) for method in run.settings.methods]


def prepare(run: Run[Settings]) -> _Shared:
    """Read or draw the ratings."""
    settings = run.settings
    ratings = draw_ratings(settings.users, settings.items, run.seed) if run.data is None else load_ratings(run.data)
    return _Shared(run, ratings)


def compute(shared: _Shared, cell: Cell) -> Score:
    """Complete one training matrix by one method."""
    run = shared.run
    split = split_ratings(shared.ratings, run.settings.test_share, 1000 * run.seed + cell.split)
    try:
        predicted, chosen = complete(cell.method, split.matrix, split.rows, split.columns)
    except MissingDependencyError:
        return Score(None, "not installed")
    return Score(float(np.sqrt(np.mean((predicted - split.values) ** 2))), chosen)


def report(results: Results[Settings, Cell, Score]) -> Report:
    """Put the methods in the order of their error."""
    rows, missing = [], []
    for method in results.settings.methods:
        found = [(cell, score) for cell, score in results.values.items() if cell.method == method]
        errors = [score.error for _, score in found if score.error is not None]
        if not errors:
            missing.append(method)
            continue
        spread = f" ± {np.std(errors, ddof=1):.4f}" if len(errors) > 1 else ""
        seconds = np.mean([results.seconds[cell] for cell, _ in found])
        chosen = ", ".join(dict.fromkeys(score.chosen for _, score in found if score.chosen))
        rows.append(
            (float(np.mean(errors)), [method, f"{np.mean(errors):.4f}{spread}", f"{seconds:.1f}", chosen or "-"])
        )
    rows.sort(key=lambda row: row[0])
    splits = results.settings.splits
    caption = (
        f"Root mean square error on held-out ratings, mean and standard deviation over {splits} random "
        f"split{'s' if splits > 1 else ''}, the best first; seconds to choose, fit and predict"
    )
    parts: list[str | Table] = [Table(["method", "RMSE", "seconds", "chosen"], [row for _, row in rows], caption)]
    if missing:
        parts.append(f"Not run, because scikit-surprise is not installed: {', '.join(missing)}.")
    return Report(
        "Matrix completion",
        "Ratings that were held out, predicted by kernel regression with the tangent kernel of a network, by matrix "
        "factorisation, by neighbours and by imputers. Every ridge and strength is chosen on a part of the training ratings.",
        [Section("Errors", parts)],
    )


EXPERIMENT = experiment_of(
    globals(),
    name="matrix_completion",
    title="Error on held-out ratings of kernel regression, factorisation, neighbours and imputers.",
    reproduces="Golikov et al. 2022, section 6.1.3",
    files=FILES,
    selects=("splits", "methods"),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
