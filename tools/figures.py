"""The figures of the site, drawn from stored records: ``python tools/pages.py`` draws them again.

``docs/images/home.svg`` shows what the example of the home page computes; the others show records of ``docs/results`` and
``studies/results``.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ntkit.plots import new_figure

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "docs/results/benchmarks.jsonl"
STUDIES = ROOT / "studies/results"
INK, OURS, THEIRS, AGAINST = "#4a5561", "#1f77c9", "#8a95a0", "#c2571a"  # readable on white and on the dark page
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
"""The networks of ``make bench``."""

SHORT = {
    "conv 3, average": "3 conv, pooled",
    "conv 20, average": "20 conv, pooled",
    "conv 3, flatten": "3 conv",
    "conv 3, flatten, Gram": "3 conv, Gram",
    "conv 20, flatten": "20 conv",
    "myrtle 5": "Myrtle-5",
    "myrtle 10": "Myrtle-10",
    "residual, strided": "residual, strided",
    "dense 3": "fully connected",
    "dense 3, Gram": "the same, Gram",
}


def records() -> list[dict[str, Any]]:
    """Return the records of ``make bench``, the newest last."""
    return [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]


def history() -> Figure:
    """Draw the ratios of all records, in the order of the records."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    found = records()
    for name, label in LABELS.items():
        ratios = [record["ratios"].get(name, {}).get("float32", float("nan")) for record in found]
        axes.plot(range(len(found)), ratios, "o-", label=label)
    axes.set_xticks(range(len(found)), [record["commit"][:8] for record in found], rotation=45)
    axes.set_yscale("log")
    axes.set_ylabel("times as fast, float32")
    axes.legend(frameon=False, fontsize="x-small", bbox_to_anchor=(1, 1))
    return figure


def speed() -> Figure:
    """Draw how many times as fast as neural-tangents each network of the newest record is."""
    record = records()[-1]
    names = sorted(record["ratios"], key=lambda name: record["ratios"][name]["float32"])
    figure = new_figure(5.6, 4.4)
    axes = figure.subplots()
    for shift, kind, colour in ((0.2, "float32", OURS), (-0.2, "float64", THEIRS)):
        values = [record["ratios"][name].get(kind, float("nan")) for name in names]
        axes.barh([row + shift for row in range(len(names))], values, 0.38, color=colour, label=kind)
    axes.set_yticks(range(len(names)), [SHORT[name] for name in names])
    axes.set_xscale("log")
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_xlabel("times as fast as neural-tangents (1: equal)")
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def papers() -> Figure:
    """Draw the numbers of the papers beside ours, of the runs that are compared because they have the papers' size."""
    figure = new_figure(5, 4.4)
    axes = figure.subplots()
    points: dict[str, list[tuple[float, float]]] = {"inside": [], "outside": []}
    for file in sorted(STUDIES.rglob("results.csv")):
        with file.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                verdict = row["verdict"].split(",")[0]
                if verdict in points and (paper := number(row["paper"])) and (ours := number(row["ours"])):
                    points[verdict].append((abs(paper), abs(ours)))
    for (verdict, pairs), colour in zip(points.items(), (OURS, AGAINST), strict=True):
        axes.plot(*zip(*pairs, strict=True), "o", color=colour, alpha=0.7, label=f"{verdict}: {len(pairs)}")
    ends = [f([value for pairs in points.values() for pair in pairs for value in pair]) for f in (min, max)]
    axes.plot(ends, ends, color=INK, linewidth=1)
    axes.set(xscale="log", yscale="log", xlabel="number of the paper", ylabel="ours")
    axes.legend(frameon=False, fontsize="small")
    return figure


def number(text: str) -> float | None:
    """Read a number; None for anything else, and for zero, which has no logarithm."""
    try:
        return float(text) or None
    except ValueError:
        return None


def home() -> Figure:
    """Draw what the example of the home page computes."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text("utf-8"), flags=re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(code, names)
    figure = new_figure(5, 3.6)
    axes = figure.subplots()
    grid, mean, std = (names[name].squeeze() for name in ("grid", "mean", "std"))
    axes.fill_between(
        grid, mean - 2 * std, mean + 2 * std, color=OURS, alpha=0.2, linewidth=0, label="two standard deviations"
    )
    axes.plot(grid, mean, color=OURS, label="mean of all trained networks")
    axes.plot(names["x"].squeeze(), names["y"].squeeze(), "o", color=AGAINST, label="training points")
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(0, -0.08))
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {"benchmarks": history, "speed": speed, "papers": papers, "home": home}
"""The figures by the names of their files in ``docs/images``."""


def draw() -> None:
    """Draw every figure; text in the colour of both pages, no background, and the same bytes for the same records."""
    style = {"svg.hashsalt": "ntkit", "savefig.transparent": True}
    style |= dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK)
    with mpl.rc_context(style):
        for name, figure in FIGURES.items():
            figure().savefig(ROOT / f"docs/images/{name}.svg", metadata={"Date": None})
