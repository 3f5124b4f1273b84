"""Tables of the label-aware experiment, and the comparison of its numbers with the paper's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ._by_seed import is_positive
from ._images import images_size
from ._label_aware_scores import METHODS, Scores
from .plots import Table
from .skeleton import Claim, Comparison

__all__ = ["PAPER", "claims", "comparisons", "differences_table", "strengths_table", "table"]

PAPER = {
    "deer vs dog": (85.15, 86.75, 85.65, 85.80, 86.75, 86.25),
    "cat vs deer": (83.55, 84.85, 83.90, 83.90, 84.85, 84.55),
    "cat vs frog": (86.95, 87.40, 87.20, 87.15, 87.40, 87.10),
    "deer vs frog": (87.55, 88.30, 87.85, 87.90, 88.10, 88.30),
    "bird vs frog": (86.35, 87.45, 87.45, 87.25, 86.40, 87.00),
    "2000": (44.01, 46.31, 44.49, 44.64, 46.31, 45.72),
    "5000": (50.44, 52.66, 51.39, 51.38, 52.66, 52.50),
}
"""Accuracy in % in Tables 1 and 2, of CNTK, LANTK-best, KR-V1, KR-V2, FJLT-V1 and FJLT-V2; the pairs with 10,000 images."""

_ENOUGH = 2000  # training images, as by default

Accuracies = Callable[[Scores], NDArray[np.float64]]
"""Gives the test accuracy of something in each draw, shape (draws,)."""


def _rows(methods: Sequence[str] = METHODS) -> list[tuple[str, int, Accuracies]]:
    """Return the name of each row, its place in :data:`PAPER` and its accuracies; what is best of four needs all four."""
    places = {name: 2 + place for place, name in enumerate(METHODS)}
    rows: list[tuple[str, int, Accuracies]] = [("CNTK", 0, lambda scores: scores.base)]
    rows += [(name.upper(), places[name], _chosen(name)) for name in methods]
    rows += [(f"{name.upper()}, strength by test", places[name], _on_test(name)) for name in methods]
    if set(methods) == set(METHODS):
        rows.append(("best by validation", 1, _chosen(*METHODS)))
        rows.append(("best of the four on test", 1, Scores.best_method_on_test))
        rows.append(("best of all on test", 1, Scores.best_on_test))
    return rows


def _chosen(*methods: str) -> Accuracies:
    return lambda scores: scores.by_validation(*methods)


def _on_test(method: str) -> Accuracies:
    return lambda scores: scores.test[method].max(1)


def _fixed(method: str, number: int) -> Accuracies:
    return lambda scores: scores.test[method][:, number]


def _paper_size(task: str) -> tuple[int, int]:
    """Return the paper's training and test images of a task: those of its name for all classes."""
    return (int(task), 10_000) if task.isdigit() else (10_000, 2_000)


def comparisons(results: Mapping[str, Scores], sizes: Mapping[str, tuple[int, int]]) -> list[Comparison]:
    """Return every number of the paper beside ours.

    Parameters
    ----------
    results
        By task.
    sizes
        Training and test images of each task.
    """
    found = []
    for task, scores in results.items():
        for name, place, accuracies in _rows(scores.methods) if task in PAPER else ():
            ours = tuple(float(100 * one) for one in accuracies(scores))
            train, test = _paper_size(task)
            share = ours[0] / 100
            error = 100 * (share * (1 - share) / sizes[task][1]) ** 0.5 if len(ours) == 1 else None
            comparable = sizes[task][0] == train and sizes[task][1] >= test
            both = images_size(*sizes[task]), images_size(train, test)
            quantity = f"{task}, {name}: accuracy in %"
            found.append(Comparison(quantity, ours, PAPER[task][place], error, comparable, *both))
    return found


def claims(results: Mapping[str, Scores], sizes: Mapping[str, tuple[int, int]]) -> list[Claim]:
    """Ask of each kernel whether it is more accurate than the base kernel on the same images, on average over the paper's tasks.

    It is if the mean difference is above zero by more than two standard errors: over draws, or of one draw over its test images.
    """
    own = {task: scores for task, scores in results.items() if task in PAPER}
    draws = {len(scores.base) for scores in own.values()}
    if not own:
        return []
    found = []
    enough = len(draws) == 1 and min(sizes[task][0] for task in own) >= _ENOUGH
    methods = next(iter(own.values())).methods
    for name, place, accuracies in _rows(methods)[1:]:
        if name.startswith("best of"):
            continue
        method, _, rest = name.lower().partition(",")
        on_test = bool(rest)
        single = [one.paired_error(method, on_test) if method in methods else None for one in own.values()]
        theirs = np.mean([PAPER[task][place] - PAPER[task][0] for task in own])
        gains = np.mean([100 * (accuracies(one) - one.base) for one in own.values()], axis=0) if enough else np.zeros(1)
        positive, text = is_positive(gains.tolist()), _difference(list(own.values()), accuracies)
        if enough and len(gains) == 1 and None not in single:
            error = 100 * float(np.linalg.norm(np.array(single, dtype=float))) / len(single)
            positive, text = bool(gains[0] > 2 * error), f"{gains[0]:+.2f} ± {error:.2f} over test images"
        found.append(
            Claim(
                f"{name} less CNTK, in points of accuracy, mean over {len(own)} tasks",
                f"LANTK outperforms CNTK (by {theirs:.2f})",
                text,
                positive if enough else None,
                "; ".join(sorted({f"{images_size(*sizes[task])}, {len(one.base)} draws" for task, one in own.items()})),
                "; ".join(sorted({f"{images_size(*_paper_size(task))}, once" for task in own})),
            )
        )
    return found


def table(results: Mapping[str, Scores]) -> Table:
    """Return the test accuracies, averaged over draws."""
    rows = []
    for name, _, accuracies in _rows(_methods(results)):
        means = [100 * accuracies(scores).mean() for scores in results.values()]
        rows.append([name, *(f"{value:.2f}" for value in (*means, np.mean(means)))])
    return Table(["", *results, "average"], rows, "Test accuracy in %, mean over draws")


def differences_table(results: Mapping[str, Scores]) -> Table:
    """Return the differences to the base kernel on the same images, with their standard errors over draws.

    That of the average is over draws of the mean over tasks.
    """
    rows = []
    for name, _, accuracies in _rows(_methods(results))[1:]:
        cells = [_difference([scores], accuracies) for scores in results.values()]
        rows.append([name, *cells, _difference(list(results.values()), accuracies)])
    caption = "Difference to CNTK in points of test accuracy, and its standard error over draws"
    return Table(["", *results, "average"], rows, caption)


def strengths_table(results: Mapping[str, Scores]) -> Table:
    """Return what each strength would have gained if it were used in every draw, and how often it was chosen."""
    strengths = next(iter(results.values())).strengths
    rows = []
    for method in _methods(results):
        cells = []
        chosen = Counter(int(number) for scores in results.values() for number in scores.chosen(method))
        for number in range(len(strengths)):
            gain = _difference(list(results.values()), _fixed(method, number))
            indefinite = np.mean(np.concatenate([scores.indefinite[method][:, number] for scores in results.values()]))
            cells.append(f"{gain}; {chosen[number]}; {100 * indefinite:.0f} %")
        rows.append([method.upper(), *cells])
    caption = (
        "Difference to CNTK in points of test accuracy with one strength throughout; in how many draws validation chose it; in "
        "how many the Gram matrix is indefinite"
    )
    return Table(["strength", *(f"{strength:g}" for strength in strengths)], rows, caption)


def _methods(results: Mapping[str, Scores]) -> tuple[str, ...]:
    return next(iter(results.values())).methods


def _difference(results: Sequence[Scores], accuracies: Accuracies) -> str:
    """Return the mean over tasks and draws, and where the tasks have equally many the standard error over draws."""
    gains = [100 * (accuracies(scores) - scores.base) for scores in results]
    mean = np.mean([gain.mean() for gain in gains])
    if len(gains[0]) < 2 or len({len(gain) for gain in gains}) > 1:
        return f"{mean:+.2f}"
    return f"{mean:+.2f} ± {np.mean(gains, axis=0).std(ddof=1) / len(gains[0]) ** 0.5:.2f}"
