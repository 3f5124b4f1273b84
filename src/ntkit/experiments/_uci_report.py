"""What the UCI study shows: a table in the terminal, and the same as JSON, Markdown and HTML."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich.box
import rich.table
from rich.console import Console

from ntkit.plots import Picture, Section, Table, html_report, new_figure

if TYPE_CHECKING:
    from ntkit.experiments.uci import UCIResult

__all__ = ["console_table", "write_reports"]

_PACKAGES = ("ntkit", "torch", "numpy", "scipy", "scikit-learn")


def console_table(result: UCIResult) -> None:
    """Print how the methods compare."""
    source = _score_table(result)
    table = rich.table.Table(title=source.caption, title_justify="left", box=rich.box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, name in enumerate(source.header):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in source.rows:
        table.add_row(*row)
    Console().print(table)


def write_reports(result: UCIResult, folder: Path) -> list[Path]:
    """Write summary.json, table.md and report.html to a folder and give their paths."""
    texts = {
        "summary.json": json.dumps(_summary(result), indent=1) + "\n",
        "table.md": "\n\n".join(map(_markdown, (_score_table(result), _accuracy_table(result)))) + "\n",
        "report.html": _html(result),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _score_table(result: UCIResult) -> Table:
    rows = [
        [
            name,
            f"{100 * score.accuracy:.2f} ± {100 * score.deviation:.2f}",
            f"{score.rank:.2f}",
            *(f"{100 * share:.2f}" for share in (score.p90, score.p95, score.pma)),
            f"{sum(result.records[table.name, name].seconds for table in result.tables):.0f}",
        ]
        for name, score in result.scores().items()
    ]
    caption = f"{len(result.tables)} data sets: accuracy (mean ± deviation), P90, P95 and PMA in %"
    return Table(["method", "accuracy", "Friedman rank", "P90", "P95", "PMA", "seconds"], rows, caption)


def _accuracy_table(result: UCIResult) -> Table:
    rows = [
        [
            table.name,
            str(len(table)),
            str(table.X.shape[1]),
            *(f"{100 * result.accuracy(table.name, method):.1f}" for method in result.methods),
        ]
        for table in result.tables
    ]
    return Table(["data set", "points", "features", *result.methods], rows, "Test accuracy in %, mean over the folds")


def _choice_table(result: UCIResult) -> Table:
    rows = []
    for table in result.tables:
        choices = [result.records[table.name, method].outcome.choice for method in result.methods]
        rows.append([table.name, *(", ".join(f"{key} {value:.3g}" for key, value in c.items()) for c in choices)])
    return Table(["data set", *result.methods], rows, "Settings with the highest accuracy on the validation points")


def _summary(result: UCIResult) -> dict[str, Any]:
    return {
        "scores": {name: asdict(score) for name, score in result.scores().items()},
        "accuracy": {t.name: {m: result.accuracy(t.name, m) for m in result.methods} for t in result.tables},
        "grids": asdict(result.grids),
        "seed": result.seed,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }


def _markdown(table: Table) -> str:
    lines = [table.header, ["---", *("---:" for _ in table.header[1:])], *table.rows]
    return "\n".join([f"{table.caption}", "", *("| " + " | ".join(line) + " |" for line in lines)])


def _html(result: UCIResult) -> str:
    introduction = (
        f"The exact kernels of infinitely wide fully connected ReLU networks, computed by ntkit, on {len(result.tables)} "
        "small tables, beside scikit-learn's RBF support vector machine and random forest, after Arora et al. 2019, "
        "“Harnessing the power of infinitely wide deep nets on small-data tasks”."
    )
    comparison: list[str | Table | Picture] = [_score_table(result)]
    if len(result.methods) > 1:
        comparison.append(_scatter(result))
    sections = [
        Section("The methods over all data sets", comparison),
        Section("Every data set", [_accuracy_table(result), _choice_table(result)]),
        Section("How it was made", [*_methods(result), _versions()]),
    ]
    return html_report("ntkit on small tables", introduction, sections)


def _scatter(result: UCIResult) -> Picture:
    first, *others = result.methods
    figure = new_figure(6.4, 5.6)
    axes = figure.subplots()
    for name, marker in zip(others, "osD^vX", strict=False):
        x, y = ([100 * result.accuracy(table.name, method) for table in result.tables] for method in (name, first))
        axes.plot(x, y, marker, markersize=5, alpha=0.7, label=name)
    low = 100 * min(result.accuracy(table.name, method) for table in result.tables for method in result.methods)
    axes.plot([low, 100], [low, 100], color="0.6", linewidth=1, zorder=0)
    axes.set(xlabel="accuracy of the other method, %", ylabel=f"accuracy of {first}, %")
    axes.legend()
    caption = f"One point a data set and method: above the line {first} is more accurate than the other method."
    return Picture(figure, caption, f"Scatter plot of the accuracy of {first} against that of every other method.")


def _methods(result: UCIResult) -> list[str]:
    grids = result.grids
    return [
        f"NTK: fully connected ReLU networks without biases of 1 to {grids.depth} weight layers, of which the first are "
        "random and not trained: none, one, ... up to all but the last. NNGP: all but the last. Both by support "
        f"vector machine (C from {grids.costs[0]:g} to {grids.costs[-1]:g}; at most 200,000 iterations) and by kernel "
        f"regression with a bias at the output (ridge from {grids.ridges[0]:g} to {grids.ridges[-1]:g} of the mean "
        f"diagonal). RBF: {len(grids.gammas)} widths, gamma x features from {grids.gammas[0]:g} to {grids.gammas[-1]:g}, "
        f"the same C. Random forest: {grids.trees} trees, the features tried at a split "
        f"{', '.join(f'{value:g}' for value in grids.forest_features)} times the square root of their number; seed "
        f"{result.seed}.",
        "For each data set and method the settings with the highest accuracy on the validation points, trained on "
        "the training points, are chosen, the first (simplest) where several tie; then the method is trained and tested "
        "with them on each fold. Test points are used for nothing else, but as in the paper the folds redraw all "
        "points, so a test point of a fold may have been a training or validation point of the choice.",
        "Friedman rank: mean rank by accuracy among these methods, 1 the best. P90, P95: the share of data sets where "
        "the method reaches 90, 95 % of the highest accuracy there. PMA: mean of accuracy over the highest. The paper "
        "ranks among more classifiers, so its ranks, P90, P95 and PMA are not comparable with these.",
    ]


def _versions() -> Table:
    rows = [["Python", platform.python_version()], *([name, version(name)] for name in _PACKAGES)]
    return Table(["package", "version"], rows)
