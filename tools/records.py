"""Checks that figures of speed and accuracy on the pages come from stored records.

``python tools/records.py`` lists those that do not, and fails if there are any. A figure is a row of a table with digits in it,
on the pages of ``MEASURED``; in a sentence, a number with a unit of time, speed or accuracy, a decimal point or an exponent.
Code, formulas and links are left out: write a setting as code, and a bound that a test checks as a power of ten. Tables that
``tools/pages.py`` generates come from records. A figure in a sentence must have its numbers among those of the generated tables
of its section, rounded as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))

MEASURED = ("applications", "diagnostics", "feature_learning", "performance", "scale")
"""The pages whose tables show measurements; in sentences, figures of every page count."""

NOT_MEASURED = {
    ("rows", "what to use", "memory", "exact"),
    ("method", "does", "reads K", "memory"),
}
"""Headers of tables on those pages with digits that are no measurements."""

_UNITS = r"(?:%|times\b|Gflop/s|ms\b|milliseconds\b|seconds\b|s\b|minutes\b|hours\b|per second|dB\b)"
_NUMBER = r"\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?"
_LEVEL = "95 %"  # of intervals, which is chosen, not measured
_GENERATED = re.compile(r"<!-- (?:[^>]+): begin -->.*?<!-- (?:[^>]+): end -->", re.DOTALL)
_WITH_UNIT = rf"{_NUMBER}(?:\s*(?:to|and|or|,|/|±)\s*{_NUMBER})*\s*{_UNITS}"
_FRACTION = r"\d+(?:,\d{3})*(?:\.\d+(?:e[-+]?\d+)?|e[-+]?\d+)(?![.\w]*\d)"
_FIGURE = re.compile(rf"(?<![\w.-])(?:{_WITH_UNIT}|{_FRACTION})")
_NO_FIGURE = re.compile(r"`[^`]*`|\]\([^)]*\)|\b(?:[Ss]ections?|Theorem|Claim|Python) \d[\d.]*")


@dataclass(frozen=True)
class Figures:
    """What a section of a page shows without a record.

    Attributes
    ----------
    section
        Its heading.
    rows
        Rows of tables that are not generated.
    words
        Numbers in sentences that its generated tables do not have.
    """

    section: str
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]


def unrecorded(text: str, tables: bool = True) -> list[Figures]:
    r"""Find the figures of a page that come from no record, section by section.

    Parameters
    ----------
    text
        Of the page.
    tables
        Whether rows of tables count.

    Examples
    --------
    >>> unrecorded("# A\n\nIt took 3 to 4 seconds.\n\n| n | s |\n|---|---|\n| 5 | 0.1 |\n")
    [Figures(section='A', rows=(('5', '0.1'),), words=('3 to 4 seconds',))]
    """
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)  # formulas
    found = []
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        generated = [float(one) for one in _numbers(" ".join(_GENERATED.findall(body)))]
        rows, sentences = _split(_GENERATED.sub("", body))
        words = dict.fromkeys(_FIGURE.findall(sentences))
        left = Figures(
            heading.strip(),
            tuple(row for header, row in rows if tables and header not in NOT_MEASURED and _has_digits(row)),
            tuple(one for one in words if one != _LEVEL and not _among(one, generated)),
        )
        if left.rows or left.words:
            found.append(left)
    return found


def _split(body: str) -> tuple[list[tuple[tuple[str, ...], tuple[str, ...]]], str]:
    """Give rows of tables, each with the header of its table, and the sentences without code and links."""
    rows, sentences = [], []
    header: tuple[str, ...] | None = None
    for line in body.splitlines():
        if not line.startswith("|"):
            header = None
            sentences.append(line)
            continue
        cells = tuple(cell.strip() for cell in line.strip().strip("|").replace("\\|", "\0").split("|"))
        if header is None:
            header = cells
        else:
            rows.append((header, cells))
    text = " ".join(" ".join(sentences).split())
    return rows, _NO_FIGURE.sub("`", text)


def _has_digits(row: tuple[str, ...]) -> bool:
    """Say whether a row shows a number in any column but the first, which names it."""
    return bool(re.search(r"\d", re.sub(r"`[^`]*`", "", " ".join(row[1:]))))


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


def main() -> int:
    """List what comes from no record."""
    status = 0
    for page in PAGES:
        for one in unrecorded((ROOT / page).read_text(encoding="utf-8"), Path(page).stem in MEASURED):
            print(f"{page}, {one.section}: {len(one.rows)} rows, {', '.join(one.words) or 'no figure in words'}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
