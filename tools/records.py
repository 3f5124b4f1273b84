"""Checks that figures of speed and accuracy on the pages are in stored records, and enters those of a page.

A figure is a row of a table with digits in it, or in a sentence a number with a unit of time, speed or accuracy. Code and
formulas are left out. Tables that ``tools/pages.py`` generates come from records; a figure in a sentence is taken as recorded if
its numbers are among those of the generated tables of its section, rounded as it is.

``python tools/records.py`` lists what is left, and
``python tools/records.py docs/scale.md --section "Many rows" --command "python benchmarks/scale_rows.py"`` enters it as a record
marked as copied from the page. That is for runs too long to repeat: ``ntkit run`` and ``--store`` of the benchmarks write records
themselves, and need no entry.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "docs/results/entered.jsonl"
MACHINE = "AMD EPYC, AVX2, two cores"
NOTE = "entered from the page, where the commit put what the command printed; the run kept no manifest"

MEASURED = ("applications", "diagnostics", "feature_learning", "performance", "scale")
"""The pages whose tables show measurements; in sentences, figures of every page count."""

NOT_MEASURED = {
    ("rows", "what to use", "memory", "exact"),
    ("method", "does", "reads K", "memory"),
}
"""Headers of tables on those pages with digits that are no measurements."""

_UNITS = r"(?:%|times\b|Gflop/s|ms\b|milliseconds\b|seconds\b|s\b|minutes\b|hours\b|per second|dB\b)"
_NUMBER = r"\d[\d.,]*(?:e[-+]?\d+)?"
_LEVEL = "95 %"  # of intervals, which is chosen, not measured
_GENERATED = re.compile(r"<!-- (?:[^>]+): begin -->.*?<!-- (?:[^>]+): end -->", re.DOTALL)
_FIGURE = re.compile(rf"(?<![\w.-]){_NUMBER}(?:\s*(?:to|and|or|,|/|±)\s*{_NUMBER})*\s*{_UNITS}")


@dataclass(frozen=True)
class Figures:
    """What a section of a page shows.

    Attributes
    ----------
    section
        Its heading.
    rows
        Rows of tables, each with the header of its table.
    words
        Numbers with units in sentences, but those that its generated tables have too.
    """

    section: str
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    words: tuple[str, ...]


def figures_of(text: str, tables: bool = True) -> list[Figures]:
    r"""Find the figures of a page, section by section.

    Parameters
    ----------
    text
        Of the page.
    tables
        Whether rows of tables count.

    Examples
    --------
    >>> figures_of("# A\n\nIt took 3 to 4 seconds.\n\n| n | s |\n|---|---|\n| 5 | 0.1 |\n")[0]
    Figures(section='A', rows=((('n', 's'), ('5', '0.1')),), words=('3 to 4 seconds',))
    """
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)  # formulas
    found = []
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        generated = [float(one) for one in _numbers(" ".join(_GENERATED.findall(body)))]
        body = _GENERATED.sub("", body)
        rows, header = [], None
        sentences = []
        for line in body.splitlines():
            if not line.startswith("|"):
                header = None
                sentences.append(line)
                continue
            cells = tuple(cell.strip() for cell in line.strip().strip("|").replace("\\|", "\0").split("|"))
            if header is None:
                header = cells
            elif (
                tables and header not in NOT_MEASURED and re.search(r"\d", re.sub(r"`[^`]*`", "", " ".join(cells[1:])))
            ):
                rows.append((header, cells))
        words = re.sub(r"`[^`]*`", "`", " ".join(" ".join(sentences).split()))
        found.append(
            Figures(
                heading.strip(),
                tuple(rows),
                tuple(
                    one for one in dict.fromkeys(_FIGURE.findall(words)) if one != _LEVEL and not _among(one, generated)
                ),
            )
        )
    return found


def _among(figure: str, generated: Sequence[float]) -> bool:
    """Say whether every number of a figure is one of those generated, rounded to as many digits."""
    return all(any(_rounded(value, number) == float(number) for value in generated) for number in _numbers(figure))


def _numbers(text: str) -> list[str]:
    """Find the numbers of a text, without the commas that separate thousands."""
    return [one.replace(",", "") for one in re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?", text)]


def _rounded(value: float, like: str) -> float:
    """Round a value to the decimals of a number written out, or to its digits if it has an exponent."""
    mantissa, exponent, _ = like.partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(f"{value:.{decimals}e}" if exponent else f"{value:.{decimals}f}")


def stored() -> list[dict[str, Any]]:
    """Read the records."""
    return [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]


def unrecorded(page: str, text: str, records: Sequence[dict[str, Any]]) -> list[Figures]:
    """Give what is on a page and in none of its records."""
    rows, words = set(), set()
    for record in records:
        if record["page"] == page:
            words |= set(record["figures"])
            rows |= {(tuple(one["header"]), tuple(row)) for one in record["tables"] for row in one["rows"]}
    left = []
    for one in figures_of(text, Path(page).stem in MEASURED):
        missing = tuple(row for row in one.rows if row not in rows)
        unknown = tuple(word for word in one.words if word not in words)
        if missing or unknown:
            left.append(Figures(one.section, missing, unknown))
    return left


def record_of(page: str, figures: Figures, command: str, commit: str, date: str, machine: str) -> dict[str, Any]:
    """Give the record of a section."""
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    for header, row in figures.rows:
        tables.setdefault(header, []).append(list(row))
    return {
        "page": page,
        "section": figures.section,
        "command": command,
        "commit": commit,
        "date": date,
        "machine": machine,
        "note": NOTE,
        "tables": [{"header": list(header), "rows": rows} for header, rows in tables.items()],
        "figures": list(figures.words),
    }


def main() -> None:
    """List what is in no record, or enter it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("page", nargs="?", help="such as docs/scale.md; without one, every page is looked at")
    options.add_argument("--section", help="the heading of the section to enter")
    options.add_argument("--command", help="what printed its figures")
    options.add_argument("--machine", default=MACHINE, help="where (%(default)s)")
    chosen = options.parse_args()
    pages = [chosen.page] if chosen.page else [f"docs/{one.name}" for one in sorted((ROOT / "docs").glob("*.md"))]
    known = stored()
    for page in pages:
        for one in unrecorded(page, (ROOT / page).read_text(encoding="utf-8"), known):
            if chosen.command is None or one.section != chosen.section:
                print(f"{page}, {one.section}: {len(one.rows)} rows, {', '.join(one.words) or 'no figure in words'}")
                continue
            commit, date = _git("log", "-1", "--format=%H %cI", "--", page).split()
            with RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record_of(page, one, chosen.command, commit, date, chosen.machine)) + "\n")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
