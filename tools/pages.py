"""Regenerates the generated parts of README and docs: ``python tools/pages.py``. A test compares them.

A part stands between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import Any

import ntkit
from ntkit.experiments import NAMES, find
from ntkit.experiments._index import of_folder
from ntkit.plots import Table
from ntkit.trace._refusals import refused_layers

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results"
HISTORY = RESULTS / "benchmarks.jsonl"
LABELS = {
    "conv 3, average": "3 x (conv, ReLU), average pooling, 32x32x3",
    "conv 20, average": "20 x (conv, ReLU), average pooling",
    "conv 3, flatten": "3 x (conv, ReLU), flatten",
    "conv 3, flatten, Gram": "3 x (conv, ReLU), flatten, Gram matrix of one batch",
    "conv 20, flatten": "20 x (conv, ReLU), flatten",
    "myrtle 5": "Myrtle-5",
    "myrtle 10": "Myrtle-10",
    "residual, strided": "residual blocks with stride, average pooling, 33x33x3",
    "dense 3": "fully connected, 3 hidden layers, d = 784, 5,000 x 5,000",
    "dense 3, Gram": "the same, Gram matrix of 5,000",
}


def last_record() -> dict[str, Any]:
    """Return the newest record of ``make bench``."""
    lines = HISTORY.read_text(encoding="utf-8").splitlines()
    return json.loads(lines[-1])


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
        # Of strided networks most entries that are counted are never computed, and vectors have none.
        if "of the roofline, float32" in found and name != "residual, strided":
            shares = [f"{100 * found[f'of the roofline, {kind}']:.0f} %" for kind in ("float32", "float64")]
            rate, threads = found["entries x layers / s, float32"], found["speed-up by threads"]
            cells = [LABELS.get(name, name), f"{rate:.2e}".replace("e+0", "e"), *shares, f"{threads:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def million() -> str:
    """Set the time of a million images, from the newest record, beside what the survey extrapolates."""
    record = last_record()
    milliseconds = record["milliseconds per entry"]["myrtle 5"]["float32"]
    years = milliseconds / 1000 * 1_000_000 * 1_000_001 / 2 / (365.25 * 24 * 3600)
    return fill(
        "Golikov et al. 2022 (section 9) extrapolate 5e9 seconds, 160 years, for the Gram matrix of a million images with the "
        "kernel of a Myrtle network, computed by neural-tangents on a GTX 1080Ti. At the rate of the record above (Myrtle-5, "
        f"float32, {milliseconds:.3g} ms per entry) the 5e11 entries of one triangle take {years:.2g} years on "
        f"{record['machine']['threads']} threads. `ntkit run myrtle_by_size` measures the rate of your machine.",
        130,
        break_on_hyphens=False,
    )


def experiments() -> str:
    """Return the table of experiments."""
    lines = ["| `ntkit run` | reproduces | measures |", "|---|---|---|"]
    return "\n".join(lines + [f"| `{name}` | {find(name).reproduces} | {find(name).title} |" for name in NAMES])


def results() -> str:
    """Return the table of stored results, as in their reports."""
    lines = ["| experiment | quantity | paper | ours | spread | draws | verdict |", "|---|---|---|---|---|---|---|"]
    for manifest in sorted(RESULTS.rglob("manifest.json")):
        name = json.loads(manifest.read_text(encoding="utf-8"))["experiment"]
        with (manifest.parent / "results.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                shown = [_short(row[column]) for column in ("quantity", "paper", "ours", "spread", "draws", "verdict")]
                lines.append(f"| `{name}` | {' | '.join(shown)} |")
    return "\n".join(lines)


def runs() -> str:
    """List the stored runs by their size and data, and those without a row in the table of results."""
    kinds: dict[str, list[str]] = {}
    without_rows = []
    for manifest in sorted(RESULTS.rglob("manifest.json")):
        found = of_folder(manifest.parent)
        stored = found.read(manifest.parent)
        from_file = stored.data is not None and not stored.data.embedded
        sizes = (one for one in ("default", "full", "quick") if found.sizes(one, from_file) == stored.settings)
        size = next((f"{one} size" for one in sizes), "settings of its own, which its page lists")
        kinds.setdefault(f"{size}{', data from a file' if from_file else ''}", []).append(f"`{found.name}`")
        if len((manifest.parent / "results.csv").read_text(encoding="utf-8").splitlines()) == 1:
            without_rows.append(f"`{found.name}`")
    lines = [f"- {kind}: {', '.join(dict.fromkeys(names))}" for kind, names in sorted(kinds.items())]
    last = f"The papers give no figure to compare with {_listing(without_rows)}: their pages have tables and curves of their own."
    return "\n".join([*lines, "", fill(last, 130, break_on_hyphens=False)])


def movement() -> str:
    """Return the tables of the stored run of ``kernel_evolution``."""
    folder = RESULTS / "kernel_evolution"
    found = of_folder(folder)
    sections = found.report(found.read(folder)).sections
    shown = [part for section in sections for part in section.parts if isinstance(part, Table)]
    return "\n\n".join(f"{fill(table.caption, 130, break_on_hyphens=False)}\n\n{_markdown(table)}" for table in shown)


def _markdown(table: Table) -> str:
    rows = [table.header, ["---"] * len(table.header), *table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows).replace("| ---", "|---").replace("--- |", "---|")


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


def draw_history() -> None:
    """Draw the ratios of all records, in the order of the records."""
    import matplotlib as mpl

    from ntkit.plots import new_figure

    records = [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]
    figure = new_figure(8, 4)
    axes = figure.subplots()
    for name, label in LABELS.items():
        ratios = [record["ratios"].get(name, {}).get("float32", float("nan")) for record in records]
        axes.plot(range(len(records)), ratios, "o-", label=label)
    axes.set_xticks(range(len(records)), [record["commit"][:8] for record in records], rotation=45)
    axes.set_yscale("log")
    axes.set_ylabel("times as fast, float32")
    axes.legend(frameon=False, fontsize="x-small", bbox_to_anchor=(1, 1))
    with mpl.rc_context({"svg.hashsalt": "ntkit"}):  # the same records give the same bytes
        figure.savefig(ROOT / "docs/images/benchmarks.svg", metadata={"Date": None})


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"speed": speed},
    "docs/layers.md": {"supported layers": ntkit.supported_layers, "refused layers": refused_layers},
    "docs/performance.md": {"efficiency": efficiency_table, "speed": speed_table, "million": million},
    "docs/reproducing.md": {"experiments": experiments, "runs": runs, "results": results},
    "docs/diagnostics.md": {"movement": movement},
}


def current(page: str, text: str) -> str:
    """Return the text of a page with its generated parts regenerated."""
    for name, make in PARTS[page].items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise SystemExit(f"{page} lacks {begin} and {end}")
        text = f"{before}{begin}\n{make()}\n{end}{after}"
    return text


def main() -> None:
    """Regenerate every page."""
    draw_history()
    for page in PARTS:
        path = ROOT / page
        path.write_text(current(page, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
