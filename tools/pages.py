"""Regenerates the generated parts of README and docs: ``python tools/pages.py``. A test compares them.

A part stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``. ``PARTS`` lists those that belong to one page. On every
page, ``run FOLDER`` shows the tables of a stored run, ``run FOLDER, SECTION`` those of one section of its report,
``comparisons FOLDER FOLDER`` what stored runs found beside the papers' values, ``benchmark NAME`` the tables that
``python benchmarks/NAME.py --store`` wrote, ``benchmark NAME, WORDS`` those whose captions begin with these words, and
``caption NAME, WORDS`` only these captions, of tables too long for a page.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import Any

from figures import LABELS, draw, records

import ntkit
from ntkit._src.trace.matchers._refusals import refused_layers
from ntkit_studies import NAMES, find
from ntkit_studies._index import of_folder
from ntkit_studies.feature_learning.rfm_tasks import TABLES
from ntkit_studies.plots import Table

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
RESULTS = ROOT / "docs/results"
STUDIES = ROOT / "studies/results"


def last_record() -> dict[str, Any]:
    """Return the newest record of ``make bench``."""
    return records()[-1]


def speed() -> str:
    """Return a sentence about the speed of the newest record."""
    record = last_record()
    ratios = {name: found["float32"] for name, found in record["ratios"].items()}
    machine = record["machine"]
    conv, flat, dense = (ratios[name] for name in ("conv 3, average", "conv 3, flatten", "dense 3"))
    return (
        f"On {machine['threads']} threads, the same inputs, in one run, against {record['peer']}: {conv:.3g} times as fast for "
        f"three convolutions with\naverage pooling, {flat:.3g} without pooling, {dense:.2g} for a fully connected network "
        "(float32; `make bench`, [all cases](docs/performance.md))."
    )


def speed_table() -> str:
    """Return the table of the newest record."""
    record = last_record()
    columns = ("float32", "float64", "reference", "neural-tangents")
    lines = [
        f"| network | {' | '.join(columns)} | ratio, float32 | ratio, float64 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, times in record["milliseconds per entry"].items():
        shown = [_number(times.get(column)) for column in columns]
        ratios = [_number(record["ratios"][name].get(kind)) for kind in ("float32", "float64")]
        lines.append(f"| {LABELS.get(name, name)} | {' | '.join(shown + ratios)} |")
    machine = record["machine"]
    where = f"{machine.get('processor', machine.get('machine', ''))}, {machine['threads']} threads"
    return "\n".join(
        [*lines, "", f"{where}; commit {record['commit'][:8]}, {record['date'][:10]}; the peer is {record['peer']}."]
    )


def efficiency_table() -> str:
    """Return how well the newest record uses the machine."""
    lines = [
        "| network | entries x layers per second, float32 | of the roofline, float32 | float64 | two threads against one |",
        "|---|---|---|---|---|",
    ]
    for name, found in last_record()["efficiency"].items():
        if "of the roofline, float32" in found:  # vectors have none
            shares = [f"{100 * found[f'of the roofline, {kind}']:.0f} %" for kind in ("float32", "float64")]
            rate, threads = found["entries x layers / s, float32"], found["speed-up by threads"]
            cells = [LABELS.get(name, name), f"{rate:.2e}".replace("e+0", "e"), *shares, f"{threads:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    found = last_record()["efficiency"]
    kernel, gram = (found[name]["times the matrix product"] for name in ("dense 3", "dense 3, Gram"))
    rest = (
        "Entries are those that are computed: strides leave out most of a covariance. In that run kernels between 5,000 and "
        f"5,000 vectors took {kernel:.2f} times as long as the matrix product alone, and Gram matrices of 5,000 vectors "
        f"{gram:.2f} times, because half of them is a mirror image."
    )
    return "\n".join([*lines, "", fill(rest, 130, break_on_hyphens=False)])


def million() -> str:
    """Set the time of a million images, from the stored run of ``myrtle_by_size``, beside what the survey extrapolates."""
    folder = STUDIES / "myrtle_by_size"
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        (row,) = [one for one in csv.DictReader(file) if one["quantity"].startswith("Figure 5") and one["paper"]]
    stored = find("myrtle_by_size").read(folder)
    years, entries = float(row["ours"]), 1_000_000 * 1_000_001 / 2
    milliseconds = years * 365.25 * 24 * 3600 / entries * 1000
    return fill(
        "Golikov et al. 2022 (section 9) extrapolate 5e9 seconds, 160 years, for the Gram matrix of a million images with the "
        "kernel of a Myrtle network, computed by neural-tangents on a GTX 1080Ti. The stored run of `ntkit run myrtle_by_size` "
        f"took {milliseconds:.3g} ms per entry of the Gram matrix of {max(stored.settings.sizes)} images (NTK, float32, "
        f"{stored.manifest.machine.threads} threads, written to disk): at that rate the 5e11 entries of one triangle take "
        f"{years:.2g} years. It is an extrapolation, and larger Gram matrices take less per entry.",
        130,
        break_on_hyphens=False,
    )


def experiments() -> str:
    """Return the table of experiments."""
    lines = ["| `ntkit run` | reproduces | measures |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{name}` | {find(name).reproduces} | {find(name).title} |" for name in NAMES])


def results() -> str:
    """Return the table of stored results, as in their reports."""
    lines = [
        "| experiment | quantity | paper | ours | spread | draws | size | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for manifest in sorted(STUDIES.rglob("manifest.json")):
        name = json.loads(manifest.read_text(encoding="utf-8"))["experiment"]
        with (manifest.parent / "results.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                shown = [
                    _short(row[column])
                    for column in ("quantity", "paper", "ours", "spread", "draws", "size", "verdict")
                ]
                lines.append(_line([f"`{name}`", *shown]))
    return "\n".join(lines)


def runs() -> str:
    """List the stored runs by their size and data, and those without a row in the table of results."""
    kinds: dict[str, list[str]] = {}
    without_rows = []
    for manifest in sorted(STUDIES.rglob("manifest.json")):
        found = of_folder(manifest.parent)
        stored = found.read(manifest.parent)
        from_file = stored.data is not None and not stored.data.embedded
        sizes = (one for one in ("default", "full", "quick") if _same(found.sizes(one, from_file), stored.settings))
        size = next((f"{one} size" for one in sizes), "settings of its own, which its page lists")
        kinds.setdefault(f"{size}{', data from a file' if from_file else ''}", []).append(f"`{found.name}`")
        if len((manifest.parent / "results.csv").read_text(encoding="utf-8").splitlines()) == 1:
            without_rows.append(f"`{found.name}`")
    lines = [f"- {kind}: {', '.join(dict.fromkeys(names))}" for kind, names in sorted(kinds.items())]
    last = f"The papers give no figure to compare with {_listing(without_rows)}: their pages have tables and curves of their own."
    return "\n".join([*lines, "", fill(last, 130, break_on_hyphens=False)])


def _same(settings: Any, stored: Any) -> bool:
    """Compare settings, but for those whose default depends on the installation, such as the photographs that it has."""
    changing = [one.name for one in fields(settings) if one.default_factory is not MISSING]
    return replace(settings, **{name: getattr(stored, name) for name in changing}) == stored


def run_tables(folder: str, section: str | None = None) -> str:
    """Return the tables of a stored run, and where they come from.

    Parameters
    ----------
    folder
        Of the run, in ``studies/results``.
    section
        The heading of a section of its report; None takes them all.
    """
    place = STUDIES / folder
    found = of_folder(place)
    stored = found.read(place)
    sections = [one for one in found.report(stored).sections if section is None or one.title == section]
    tables = [part for one in sections for part in one.parts if isinstance(part, Table)]
    if not tables:
        raise SystemExit(f"The report of {folder} has no table{f' in a section {section!r}' if section else ''}.")
    manifest = stored.manifest
    where = f"{manifest.machine.processor}, {_threads(manifest.machine.threads)}, {manifest.started[:10]}"
    source = f"Stored in `studies/results/{folder}`: seed {stored.seed}, {where}."
    return "\n\n".join([*map(_captioned, tables), source])


def comparisons(*folders: str) -> str:
    """Return a table of what each stored run found beside the paper's values, as in its report; a common size is said once."""
    parts = []
    for folder in folders:
        with (STUDIES / folder / "results.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        sizes = list(dict.fromkeys(row["size"] for row in rows))
        header = ["quantity", "paper", "ours", *(["size"] if len(sizes) > 1 else []), "verdict"]
        lines = [_line(header), "|---" * len(header) + "|"]
        for row in rows:
            ours = _short(row["ours"]) + (f" ± {float(row['spread']):.2g}" if row["spread"] else "")
            size = [row["size"] or "–"] if len(sizes) > 1 else []
            lines.append(_line([row["quantity"], _short(row["paper"]), ours, *size, row["verdict"]]))
        place = f"`{folder}`, {sizes[0]}:" if len(sizes) == 1 and sizes[0] else f"`{folder}`:"
        parts.append("\n".join([place, "", *lines]))
    return "\n\n".join(parts)


def benchmark_tables(name: str, caption: str = "") -> str:
    """Return the tables that a benchmark stored and whose captions begin as given, and where they come from."""
    record = json.loads((RESULTS / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))
    machine = record["machine"]
    source = (
        f"`{record['command']}`; {machine['processor']}, {_threads(machine['threads'])}, load {record['load'][0]:.1f} at the "
        f"start; commit {record['commit'][:8]}, {record['date'][:10]}."
    )
    return "\n\n".join([*map(_captioned, _captioned_as(caption, name, record)), source])


def benchmark_captions(name: str, caption: str) -> str:
    """Return the captions that begin as given of the tables that a benchmark stored."""
    record = json.loads((RESULTS / "benchmarks" / f"{name}.json").read_text(encoding="utf-8"))
    captions = " ".join(table.caption for table in _captioned_as(caption, name, record))
    return fill(f"{captions} (`docs/results/benchmarks/{name}.json` has them all.)", 130, break_on_hyphens=False)


def held_out() -> str:
    """Say how recursive feature machines did on the tables that nobody had looked at when their grid was fixed."""
    record = json.loads((RESULTS / "benchmarks/rfm.json").read_text(encoding="utf-8"))
    (table,) = (one for one in record["tables"] if "rows" in one["header"])
    rows = {row[0]: [float(value) for value in row[2:5]] for row in table["rows"] if row[0] not in TABLES}
    own, plain, peer = (fmean(column) for column in zip(*rows.values(), strict=True))

    def lead(other: int) -> str:
        gains = [scores[0] - scores[other] for scores in rows.values()]
        return f"{fmean(gains):+.2f} points, with a standard error of {stdev(gains) / len(gains) ** 0.5:.2f} over the tables"

    better, worse = (sum(sign * (a - b) > 0 for a, b, _ in rows.values()) for sign in (1, -1))
    text = (
        f"On the {len(rows)} tables that were held out `RFMClassifier()` has a mean accuracy of {own:.2f} and the plain tangent "
        f'kernel, `NTKClassifier(tune="loo")`, {plain:.2f}: {lead(1)}; better on {better}, worse on {worse}. The peer has '
        f"{peer:.2f}; against it ours has {lead(2)}."
    )
    return fill(text, 130, break_on_hyphens=False)


def _captioned_as(caption: str, name: str, record: dict[str, Any]) -> list[Table]:
    tables = [Table(**table) for table in record["tables"] if table["caption"].startswith(caption)]
    if not tables:
        raise SystemExit(f"The record of {name} has no table whose caption begins with {caption!r}.")
    return tables


def _captioned(table: Table) -> str:
    return f"{fill(table.caption, 130, break_on_hyphens=False)}\n\n{_markdown(table)}"


def _threads(number: int) -> str:
    return f"{number} thread{'s' if number > 1 else ''}"


def _markdown(table: Table) -> str:
    return "\n".join([_line(table.header), "|---" * len(table.header) + "|", *map(_line, table.rows)])


def _line(cells: Sequence[str]) -> str:
    """Return a row of a table; a bar within a cell would end it."""
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _listing(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _short(text: str) -> str:
    """Return a number with four digits, any other text unchanged."""
    try:
        return text if text.isdigit() else f"{float(text):.4g}"
    except ValueError:
        return text or "–"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    text = f"{value:.3g}" if value < 1000 else f"{value:.0f}"
    return text if "e" not in text else f"{value:.7f}"


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"speed": speed},
    "docs/feature_learning.md": {"held out": held_out},
    "docs/layers.md": {"supported layers": ntkit.supported_layers, "refused layers": refused_layers},
    "docs/performance.md": {"efficiency": efficiency_table, "speed": speed_table, "million": million},
    "docs/reproducing.md": {"experiments": experiments, "runs": runs, "results": results},
}
"""The parts of one page each."""

KINDS: dict[str, Callable[[str], str]] = {
    "run": lambda rest: run_tables(*rest.split(", ", 1)),
    "comparisons": lambda rest: comparisons(*rest.split()),
    "benchmark": lambda rest: benchmark_tables(*rest.split(", ", 1)),
    "caption": lambda rest: benchmark_captions(*rest.split(", ", 1)),
}
"""The parts of any page, by the first word of their names; they get the rest of it."""

_PART = re.compile(r"<!-- (?P<name>[^>]+): begin -->\n.*?<!-- (?P=name): end -->", re.DOTALL)


def current(page: str, text: str) -> str:
    """Return the text of a page with its generated parts regenerated."""
    own = PARTS.get(page, {})

    def part(found: re.Match[str]) -> str:
        name = found["name"]
        kind, _, rest = name.partition(" ")
        if name not in own and kind not in KINDS:
            raise SystemExit(f"{page} has a part {name!r} that nothing makes; known are {[*own]} and {[*KINDS]} ...")
        return f"<!-- {name}: begin -->\n{own[name]() if name in own else KINDS[kind](rest)}\n<!-- {name}: end -->"

    for name in own:
        if f"<!-- {name}: begin -->" not in text or f"<!-- {name}: end -->" not in text:
            raise SystemExit(f"{page} lacks <!-- {name}: begin --> and <!-- {name}: end -->")
    return _PART.sub(part, text)


def main() -> None:
    """Regenerate every page."""
    draw()
    for page in PAGES:
        path = ROOT / page
        path.write_text(current(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
