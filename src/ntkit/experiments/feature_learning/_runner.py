"""What the experiments of feature learning share: claims beside what was found, records kept in a file, one command each."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Claim", "Experiment", "mean_and_spread", "run"]

Settings = TypeVar("Settings")
Record = TypeVar("Record")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper beside what was found.

    Attributes
    ----------
    what
        What is measured.
    paper
        What the paper says.
    found
        What was found here, with the spread over seeds.
    holds
        Whether what is asked of this reproduction holds; None where nothing is asked.
    """

    what: str
    paper: str
    found: str
    holds: bool | None = None


@dataclass(frozen=True)
class Experiment(Generic[Settings, Record]):
    """An experiment: one record for each seed, and what follows from all of them.

    Attributes
    ----------
    name, description
        Of the module, for the command line.
    settings, quick
        How large it is, and a size of a few seconds that means nothing.
    seeds
        How many.
    measure
        Gives the record of one seed: a dataclass of numbers, lists and dictionaries.
    record
        The class of the records.
    claims
        Compares records with the paper.
    draw
        Gives the figures by name; the first is the main one.
    """

    name: str
    description: str
    settings: Settings
    quick: Settings
    seeds: int
    measure: Callable[[Settings, int], Record]
    record: type[Record]
    claims: Callable[[Settings, list[Record]], list[Claim]]
    draw: Callable[[Settings, list[Record]], dict[str, Figure]]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the experiment from the command line and give the exit status."""
        options = argparse.ArgumentParser(
            prog=f"python -m ntkit.experiments.feature_learning.{self.name}", description=self.description
        )
        options.add_argument(
            "--output", type=Path, default=Path(f"{self.name}.json"), help="numbers; figures go beside it"
        )
        options.add_argument("--seeds", type=int, help=f"how many ({self.seeds})")
        options.add_argument("--threads", type=int, help="threads (torch's choice)")
        options.add_argument("--quick", action="store_true", help="a few seconds, too small to mean anything")
        chosen = options.parse_args(arguments)
        if chosen.threads is not None:
            torch.set_num_threads(max(1, chosen.threads))
        settings = self.quick if chosen.quick else self.settings
        seeds = chosen.seeds or (1 if chosen.quick else self.seeds)
        records = run(self, settings, seeds, chosen.output)
        for claim in self.claims(settings, records):
            mark = {True: "holds", False: "DOES NOT HOLD", None: "-"}[claim.holds]
            print(f"{claim.what}\n    paper: {claim.paper}\n    here:  {claim.found}  [{mark}]")
        for name, figure in self.draw(settings, records).items():
            path = chosen.output.with_name(f"{chosen.output.stem}-{name}.png")
            figure.savefig(path, dpi=40 if chosen.quick else 140)
            print(f"figure: {path}")
        return 0


def run(experiment: Experiment[Any, Record], settings: Any, seeds: int, path: Path | None = None) -> list[Record]:
    """Give the records of the seeds 0, 1, ...; those in the file, of the same settings, are not computed again."""
    key = json.loads(json.dumps(asdict(settings)))
    kept: list[Any] = []
    if path is not None and path.exists():
        content = json.loads(path.read_text())
        if content.get("experiment") == experiment.name and content.get("settings") == key:
            kept = content["records"]
    for seed in range(len(kept), seeds):
        kept.append(json.loads(json.dumps(asdict(experiment.measure(settings, seed)))))  # type: ignore[call-overload]
        if path is not None:
            path.write_text(json.dumps({"experiment": experiment.name, "settings": key, "records": kept}))
    return [experiment.record(**entry) for entry in kept[:seeds]]


def mean_and_spread(values: Sequence[float]) -> str:
    """Give mean and standard deviation over seeds as text."""
    numbers = np.asarray([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not len(numbers):
        return "nan"
    return f"{numbers.mean():.3f} ± {numbers.std():.3f}"
