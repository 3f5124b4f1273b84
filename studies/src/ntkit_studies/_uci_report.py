"""What the UCI study shows: the methods over all data sets, and every data set."""

from __future__ import annotations

import numpy as np

from ntkit.plots import new_figure

from ._uci_methods import Grids, Outcome
from ._uci_scores import Score, scores
from .plots import Picture, Section, Table

__all__ = ["accuracies", "scores_of", "sections"]

Outcomes = dict[str, dict[str, Outcome]]
"""By method, then by data set."""

Seconds = dict[str, float]
"""By method: the time of all its cells."""


def accuracies(outcomes: Outcomes) -> dict[str, dict[str, float]]:
    """Return the mean accuracy over the folds, by method, then by data set."""
    return {method: {data: float(np.mean(one.test)) for data, one in own.items()} for method, own in outcomes.items()}


def scores_of(outcomes: Outcomes) -> dict[str, Score]:
    """Compare the methods over all data sets."""
    return scores({method: list(own.values()) for method, own in accuracies(outcomes).items()})


def sections(outcomes: Outcomes, seconds: Seconds, grids: Grids, seed: int) -> list[Section]:
    """Return the sections of the report."""
    comparison: list[str | Table | Picture] = [_score_table(outcomes, seconds)]
    if len(outcomes) > 1:
        comparison.append(_scatter(outcomes))
    return [
        Section("The methods over all data sets", comparison),
        Section("Every data set", [_accuracy_table(outcomes), _choice_table(outcomes)]),
        Section("How it was made", _methods(grids, seed)),
    ]


def _score_table(outcomes: Outcomes, seconds: Seconds) -> Table:
    rows = [
        [
            name,
            f"{100 * score.accuracy:.2f} ± {100 * score.deviation:.2f}",
            f"{score.rank:.2f}",
            *(f"{100 * share:.2f}" for share in (score.p90, score.p95, score.pma)),
            f"{seconds[name]:.0f}",
        ]
        for name, score in scores_of(outcomes).items()
    ]
    count = len(next(iter(outcomes.values())))
    caption = f"{count} data sets: accuracy (mean ± deviation over the data sets), P90, P95 and PMA in %"
    return Table(["method", "accuracy", "Friedman rank", "P90", "P95", "PMA", "seconds"], rows, caption)


def _accuracy_table(outcomes: Outcomes) -> Table:
    found, first = accuracies(outcomes), next(iter(outcomes.values()))
    rows = [
        [data, str(one.points), str(one.features), *(f"{100 * found[method][data]:.1f}" for method in outcomes)]
        for data, one in first.items()
    ]
    return Table(["data set", "points", "features", *outcomes], rows, "Test accuracy in %, mean over the folds")


def _choice_table(outcomes: Outcomes) -> Table:
    rows = []
    for data in next(iter(outcomes.values())):
        choices = [own[data].choice for own in outcomes.values()]
        rows.append([data, *(", ".join(f"{key} {value:.3g}" for key, value in c.items()) for c in choices)])
    return Table(["data set", *outcomes], rows, "Settings with the highest accuracy on the validation points")


def _scatter(outcomes: Outcomes) -> Picture:
    found = accuracies(outcomes)
    first, *others = found
    figure = new_figure(6.4, 5.6)
    axes = figure.subplots()
    for name, marker in zip(others, "osD^vX", strict=False):
        x, y = ([100 * share for share in found[method].values()] for method in (name, first))
        axes.plot(x, y, marker, markersize=5, alpha=0.7, label=name)
    low = 100 * min(share for own in found.values() for share in own.values())
    axes.plot([low, 100], [low, 100], color="0.6", linewidth=1, zorder=0)
    axes.set(xlabel="accuracy of the other method, %", ylabel=f"accuracy of {first}, %")
    axes.legend()
    caption = f"One point per data set and method: above the line {first} is more accurate than the other method."
    return Picture(figure, caption, f"Scatter plot of the accuracy of {first} against that of every other method.")


def _methods(grids: Grids, seed: int) -> list[str]:
    return [
        f"NTK: fully connected ReLU networks without biases of 1 to {grids.depth} weight layers, of which the first are "
        "random and not trained: none, one, ... up to all but the last. NNGP: all but the last. Both by support "
        f"vector machine (C from {grids.costs[0]:g} to {grids.costs[-1]:g}; at most 200,000 iterations) and by kernel "
        f"regression with a bias at the output (ridge from {grids.ridges[0]:g} to {grids.ridges[-1]:g} of the mean "
        f"diagonal). RBF: {len(grids.gammas)} widths, gamma x features from {grids.gammas[0]:g} to {grids.gammas[-1]:g}, "
        f"the same C. Random forest: {grids.trees} trees, the features tried at a split "
        f"{', '.join(f'{value:g}' for value in grids.forest_features)} times the square root of their number; seed "
        f"{seed}.",
        "For each data set and method the settings with the highest accuracy on the validation points, trained on "
        "the training points, are chosen, the first (simplest) where several tie; then the method is trained and tested "
        "with them on each fold. Test points are used for nothing else, but as in the paper the folds redraw all "
        "points, so a test point of a fold may have been a training or validation point of the choice.",
        "Friedman rank: mean rank by accuracy among these methods, 1 the best. P90, P95: the share of data sets where "
        "the method reaches 90, 95 % of the highest accuracy there. PMA: mean of accuracy over the highest. The paper "
        "ranks among more classifiers, so its ranks, P90, P95 and PMA are not comparable with these.",
    ]
