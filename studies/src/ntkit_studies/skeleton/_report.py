"""A report: comparisons with the paper first, then tables and figures; as HTML, CSV and in the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..plots import Section, Table, html_report
from ._claim import Claim, claims_table
from ._files import write_whole
from ._manifest import machine_table
from ._run import Results
from ._settings import settings_rows
from ._verdict import Comparison, both_sizes, comparison_table

__all__ = ["Report", "html", "tables", "write_report"]

_DIGITS = 10  # of a number in results.csv: more than any spread leaves certain, and none that depends on the processor


@dataclass(frozen=True)
class Report:
    """The report of an experiment.

    Attributes
    ----------
    title, introduction
        Plain text.
    sections
        In the order of reading.
    comparisons
        Comparisons of our numbers with the paper's; they become the first section, and ``results.csv``.
    claims
        Statements of the paper in words; they follow the comparisons.
    """

    title: str
    introduction: str
    sections: Sequence[Section]
    comparisons: Sequence[Comparison] = ()
    claims: Sequence[Claim] = ()


def write_report(report: Report, results: Results[Any, Any, Any], folder: Path) -> list[Path]:
    """Write ``results.csv`` and ``report.html`` and return their paths."""
    write_whole(folder / "results.csv", _csv(report))
    write_whole(folder / "report.html", html(report, results))
    return [folder / "results.csv", folder / "report.html"]


def html(report: Report, results: Results[Any, Any, Any]) -> str:
    """Return the report as one self-contained HTML text."""
    sections = list(report.sections)
    beside = _beside(report)
    if beside:
        sections.insert(0, Section("Beside the paper", beside))
    rows = settings_rows(results.settings)
    sections.append(Section("This run", [machine_table(results.manifest, results.seed, results.data, rows)]))
    return html_report(report.title, report.introduction, sections)


def tables(report: Report) -> list[Table]:
    """Return the tables to print in a terminal."""
    own = [part for section in report.sections for part in section.parts if isinstance(part, Table)]
    return [*_beside(report), *own]


def _beside(report: Report) -> list[Table]:
    numbers = [comparison_table(report.comparisons)] if report.comparisons else []
    return [*numbers, *([claims_table(report.claims)] if report.claims else [])]


def _csv(report: Report) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["quantity", "paper", "ours", "spread", "draws", "size", "verdict"])
    for one in report.comparisons:
        numbers = ["" if value is None else f"{value:.{_DIGITS}g}" for value in (one.paper, one.mean, one.spread)]
        size = both_sizes(one.size, one.paper_size)
        writer.writerow([one.quantity, *numbers, len(one.ours), size, one.verdict.value])
    for claim in report.claims:
        size = both_sizes(claim.size, claim.paper_size)
        writer.writerow([claim.what, claim.paper, claim.found, "", "", size, claim.verdict.value])
    return text.getvalue()
