"""The strength of the label-aware part, chosen by how well the kernel predicts points outside the fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import check_number, data_splits, shown
from ntkit._src.solvers import solve
from ntkit.errors import InputError

from ._pairs import PairEstimator, Pairs


@dataclass(frozen=True)
class StrengthSearch:
    """The scores of each candidate on points left out of the fit.

    ``accuracies`` are the fractions of left-out points whose class was predicted, ``errors`` the mean squared errors of their
    scores. ``best`` is the index of the highest accuracy; among equal ones, of the smallest error.
    """

    strengths: tuple[float, ...]
    accuracies: tuple[float, ...]
    errors: tuple[float, ...]
    best: int

    @property
    def strength(self) -> float:
        """The strength of the best candidate."""
        return self.strengths[self.best]


def mean_ratio(k: Tensor, z: Tensor) -> float:
    """Return mean|K| / mean|Z| over all entries, in float64; zero if Z is zero, since there is nothing to scale."""
    # Sums of the whole matrices' absolute values would need copies of them.
    blocks = zip(k.split(256), z.split(256), strict=True)
    sums = [(float(a.abs().sum(dtype=torch.float64)), float(b.abs().sum(dtype=torch.float64))) for a, b in blocks]
    size, part = (math.fsum(values) for values in zip(*sums, strict=True))
    return size / part if part > 0 else 0.0


def splits(codes: Tensor, validation: float | int, generator: torch.Generator | None) -> list[tuple[Tensor, Tensor]]:
    """Return training and validation rows, stratified by class: as many splits as folds, one for a fraction."""
    n, number = len(codes), check_number("validation", validation)
    if not (number >= 2 if isinstance(validation, int) else 0 < number < 1):
        raise InputError(
            "validation must be a number of folds, an integer from 2 on, or the fraction between 0 and 1 of the points that a "
            f"single validation set takes. Got {shown(validation)}."
        )
    if n < 2:
        raise InputError(
            f"choosing a strength needs at least two training points. Got n_samples={n}: pass one strength."
        )
    seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
    found = data_splits(n, validation, seed, codes.cpu().numpy())
    return [
        (torch.from_numpy(train).to(codes.device), torch.from_numpy(rest).to(codes.device)) for train, rest in found
    ]


def choose_strength(
    pairs: Pairs,
    labels: Tensor,
    codes: Tensor,
    estimator: Callable[[], PairEstimator],
    strengths: Sequence[float],
    ridge: float,
    validation: float | int,
    generator: torch.Generator | None,
) -> StrengthSearch:
    """Fit on a part of the training points, predict the others by kernel regression, and compare strengths.

    A new ``estimator()`` is fitted to each part, so that no label of a validation point reaches its prediction; the base kernel
    and the products of pairs are computed once. ``labels``, shape (n, c): products are targets; ``codes``, shape (n,): classes.
    """
    targets = labels if labels.shape[1] == 1 else labels - 1 / labels.shape[1]
    hits, errors, count = [0] * len(strengths), [0.0] * len(strengths), 0
    for train, rest in splits(codes, validation, generator):
        own, cross = pairs.take(train), pairs.take(rest, train)
        fitted = estimator()
        fitted.fit(own, labels[train])
        z, z_cross = fitted(own), fitted(cross)
        unit = mean_ratio(own.k, z)
        count += len(rest)
        for index, strength in enumerate(strengths):
            gram = own.k + strength * unit * z
            dual = solve(gram, targets[train].to(gram.dtype), method="indefinite", ridge=ridge).value
            scores = ((cross.k + strength * unit * z_cross) @ dual).double()
            named = (scores[:, 0] > 0).long() if scores.shape[1] == 1 else scores.argmax(1)
            hits[index] += int((named == codes[rest]).sum())
            errors[index] += float(((scores - targets[rest]) ** 2).mean(1).sum())
    accuracies, means = tuple(hit / count for hit in hits), tuple(error / count for error in errors)
    best = min(range(len(strengths)), key=lambda index: (-accuracies[index], means[index]))
    return StrengthSearch(tuple(strengths), accuracies, means, best)
