"""Rewritten reports of stored results, with an index page of all of them."""

from __future__ import annotations

from pathlib import Path

from ntkit.errors import InputError

from ._index import of_folder
from .plots import Link, Section, Table, html_report
from .skeleton import Report, Results, Verdict, write_report

__all__ = ["rebuild_reports"]


def rebuild_reports(folder: Path) -> list[Path]:
    """Rewrite the reports of stored results, and ``index.html`` if there are several, without computing anything.

    Parameters
    ----------
    folder
        The results of one experiment, or a folder that holds such folders at any depth.

    Returns
    -------
    list of Path
        The pages and tables written.

    Raises
    ------
    InputError
        If there are no results, or some cannot be read.
    """
    places = (
        [folder] if (folder / "manifest.json").exists() else sorted(one.parent for one in folder.rglob("manifest.json"))
    )
    if not places:
        raise InputError(f"{folder} holds no results. ntkit run NAME makes some.")
    written: list[Path] = []
    rows, links = [], []
    for place in places:
        experiment = of_folder(place)
        results = experiment.read(place)
        report = experiment.report(results)
        written += write_report(report, results, place)
        name = place.relative_to(folder).as_posix()
        rows.append([name, experiment.reproduces, *_counts(report), _when(results)])
        links.append(Link(f"{name}: {experiment.title}", f"{name}/report.html"))
    if places != [folder]:
        written.append(_write_index(folder, rows, links))
    return written


def _counts(report: Report) -> list[str]:
    """Count verdicts: numbers inside and outside the spread, claims that hold and that do not, everything else."""
    verdicts = [*(one.verdict for one in report.comparisons), *(one.verdict for one in report.claims)]
    kinds = ((Verdict.INSIDE, Verdict.WIDE), (Verdict.OUTSIDE,), (Verdict.HOLDS,), (Verdict.FAILS,), (Verdict.SMALLER,))
    counts = [sum(one in kind for one in verdicts) for kind in kinds]
    return [str(count) for count in (*counts, len(verdicts) - sum(counts))]


def _when(results: Results) -> str:  # type: ignore[type-arg]
    return results.manifest.started[:10]


def _write_index(folder: Path, rows: list[list[str]], links: list[Link]) -> Path:
    words = ["inside", "outside", "holds", "does not hold", "smaller than the paper's", "ours or undecided"]
    header = ["results", "reproduces", *words, "run on"]
    caption = "Numbers of the paper inside and outside our spread, claims that hold and that do not, by the rule of the reports."
    sections = [Section("All results", [Table(header, rows, caption)]), Section("Reports", links)]
    path = folder / "index.html"
    path.write_text(
        html_report("The papers' tables and figures", "Each beside what ntkit finds.", sections), encoding="utf-8"
    )
    return path
