"""What experiments over seeds share: one cell for each seed, and claims and figures from all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import numpy as np

from .plots import Picture, Section
from .skeleton import Experiment, Report, Results, Run, share_nothing

if TYPE_CHECKING:
    pass

__all__ = ["Seed", "by_seed", "is_positive", "mean_and_spread", "reaches", "size_text"]


class _Seeded(Protocol):
    @property
    def seeds(self) -> int: ...


S = TypeVar("S", bound=_Seeded)
R = TypeVar("R")


@dataclass(frozen=True)
class Seed:
    """A cell: one draw of the data and the weights.

    Attributes
    ----------
    seed
        Seed of the draw.
    """

    seed: int


def by_seed(
    module: Mapping[str, Any],
    name: str,
    title: str,
    reproduces: str,
    *,
    grows: Sequence[str],
    paper: Mapping[str, int] | None = None,
    **others: Any,
) -> Experiment[Any, Seed, Any, Any]:
    """Make an experiment of the functions of a module, with a cell for each seed and a report of figures.

    Parameters
    ----------
    module
        The ``globals()`` of the module: its docstring opens the report. ``sizes`` is as in
        :class:`~ntkit_studies.skeleton.Experiment`; ``measure`` computes the record of one seed; ``claims`` and, if there is one,
        ``comparisons`` compare the records with the paper, in words and number by number; ``draw`` gives the figures by
        name: ``"figure4"`` is the paper's, anything else is the caption itself; ``estimate`` may be missing.
    name, title, reproduces, others
        As in :class:`~ntkit_studies.skeleton.Experiment`.
    grows
        The settings that say how large a run is. Sentences of the paper get a verdict from the default size on, for which their
        rules are made, and numbers of the paper from the paper's size on.
    paper
        The paper's values of those of them in which the default is not the paper's.
    """
    sizes, draw, claims = module["sizes"], module["draw"], module["claims"]
    comparisons, introduction = module.get("comparisons"), module["__doc__"]

    def report(results: Results[Any, Seed, Any]) -> Report:
        settings, records = results.settings, list(results.values.values())
        figures = [
            Picture(figure, _caption(which), f"{_caption(which)}, of this run: {title}")
            for which, figure in draw(settings, records).items()
        ]
        numbers = [] if comparisons is None else comparisons(settings, records)
        said = claims(settings, records)
        default = sizes("default", results.from_file)
        theirs: Any = replace(cast("Any", default), **(paper or {}))
        size, paper_size = size_text(settings, grows), size_text(theirs, grows)
        whole, enough = reaches(settings, theirs, grows), reaches(settings, default, grows)
        numbers = [
            replace(
                one, comparable=one.comparable and whole, size=one.size or size, paper_size=one.paper_size or paper_size
            )
            for one in numbers
        ]
        said = [
            replace(
                one,
                holds=one.holds if enough else None,
                size=one.size or size,
                paper_size=one.paper_size or paper_size,
            )
            for one in said
        ]
        text = " ".join((introduction or "").split())
        return Report(title.rstrip("."), text, [Section("Figures", figures)], numbers, said)

    functions: dict[str, Any] = {
        "cells": _cells,
        "prepare": share_nothing,
        "compute": module["measure"],
        "report": report,
    }
    more: dict[str, Any] = {"estimate": module.get("estimate"), "selects": ("seeds",)} | others
    return Experiment(name, title, reproduces, sizes, **functions, **more)


def reaches(settings: Any, others: Any, grows: Sequence[str]) -> bool:
    """Tell whether settings are at least as large as others in those named; of several numbers the largest counts."""
    return all(_amount(getattr(settings, name)) >= _amount(getattr(others, name)) for name in grows)


def size_text(settings: Any, grows: Sequence[str]) -> str:
    """Return the size of a run in words, such as ``"n = 256, width = 128"``."""
    return ", ".join(f"{name.replace('_', ' ')} = {_amount(getattr(settings, name)):,}" for name in grows)


def _amount(value: Any) -> Any:
    return max(value) if isinstance(value, tuple) else value


def _cells(run: Run[Any]) -> list[Seed]:
    return [Seed(run.seed + number) for number in range(run.settings.seeds)]


def _caption(name: str) -> str:
    """Give ``"Figure 4 of the paper"`` for ``"figure4"``, and any other text as it is."""
    if not name.startswith("figure"):
        return name
    number = name.removeprefix("figures").removeprefix("figure").replace("and", " and ").replace("-", ", ")
    return f"Figure {number} of the paper"


def is_positive(values: Sequence[float]) -> bool | None:
    """Tell whether the mean over seeds is above zero by more than two standard errors; None for a single seed."""
    numbers = np.asarray(values, dtype=np.float64)
    if len(numbers) < 2:
        return None
    return bool(numbers.mean() > 2 * numbers.std(ddof=1) / len(numbers) ** 0.5)


def mean_and_spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation over seeds as text; of a single seed only its value."""
    numbers = np.asarray([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not len(numbers):
        return "nan"
    return f"{numbers.mean():.3f}" + (f" ± {numbers.std():.3f}" if len(numbers) > 1 else "")
