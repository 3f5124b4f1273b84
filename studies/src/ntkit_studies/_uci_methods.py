"""What the UCI study compares: each method as a list of settings, tried in order only on the validation points."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC
from torch import nn

from ntkit import NTKClassifier, infinite_width

from ._seeded import seeded
from ._uci_tables import SplitTable

__all__ = ["METHODS", "Grids", "Outcome", "evaluate", "relu_gram", "relu_net"]

Index = NDArray[np.int64]
Predictor = Callable[[Index, Index], NDArray[Any]]
"""Trains on the points at the first index and returns the labels of those at the second."""

Candidates = Iterable[tuple[Mapping[str, float], Predictor]]
"""Settings by name with their predictor, the simplest first."""


@dataclass(frozen=True)
class Grids:
    """The settings that the validation points choose from.

    Attributes
    ----------
    depth
        Most weight layers of the networks: 1 is the linear kernel.
    costs
        C of the support vector machines, those of Arora et al.
    ridges
        Of kernel regression, relative to trace(K)/n; the largest first, as the smoothest.
    gammas
        Of the RBF kernel exp(-gamma |x - x'|^2), times the number of features; as many as there are networks.
    forest_features
        Features that a split of the forest tries, as multiples of their number's square root.
    trees
        Of the forest.
    """

    depth: int = 5
    costs: tuple[float, ...] = tuple(10.0**power for power in range(-2, 5))
    ridges: tuple[float, ...] = tuple(10.0**power for power in range(0, -7, -1))
    gammas: tuple[float, ...] = tuple(2.0**power for power in range(-9, 6))
    forest_features: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    trees: int = 500


@dataclass(frozen=True)
class Outcome:
    """One method on one data set.

    Attributes
    ----------
    choice
        The settings with the highest accuracy on the validation points; the first of them if several tie.
    validation
        That accuracy.
    test
        The accuracy on the test points of each fold, trained with these settings on its training points.
    points, features
        Of the data set.
    """

    choice: dict[str, float]
    validation: float
    test: tuple[float, ...]
    points: int
    features: int


def evaluate(candidates: Candidates, table: SplitTable) -> Outcome:
    """Choose settings on the validation points and measure them on the folds."""
    best: tuple[float, Mapping[str, float], Predictor] | None = None
    for choice, predict in candidates:
        accuracy = _share_right(predict, table.y, table.train, table.validation)
        if best is None or accuracy > best[0]:
            best = accuracy, choice, predict
    assert best is not None
    validation, choice, predict = best
    test = tuple(_share_right(predict, table.y, *fold) for fold in table.folds)
    return Outcome(dict(choice), validation, test, *table.X.shape)


def relu_net(features: int, depth: int, fixed: int) -> nn.Module:
    """Return a ReLU network of so many weight layers without biases, the first of them not trained."""
    layers: list[nn.Module] = []
    # Layers draw their weights from the global generator, which is the user's.
    with seeded(0):
        for number in range(depth):
            last = number == depth - 1
            layers.append(nn.Linear(1 if number else features, 1, bias=False).requires_grad_(number >= fixed))
            layers += [] if last else [nn.ReLU()]
    return nn.Sequential(*layers)


def relu_gram(X: NDArray[np.float64], depth: int, fixed: int) -> NDArray[np.float64]:
    r"""Return the NTK of :func:`relu_net` between all points, in the scale of Arora et al. 2019c, shape (n, n).

    There :math:`K = x \cdot x'` at the input, and an activation gives :math:`K' = E[\mathrm{relu}(u)\,\mathrm{relu}(v)]`
    with no factor 2. ntkit divides by the number of features at the input; a ReLU network is homogeneous, so inputs
    times its square root undo that. With all layers fixed but the last this is the NNGP kernel of the network.
    """
    points = torch.from_numpy(X * X.shape[1] ** 0.5)
    kernel = infinite_width(relu_net(X.shape[1], depth, fixed), w_std=1.0).ntk
    return np.asarray(kernel(points).numpy())


def _kernel_candidates(
    which: Literal["ntk", "nngp"], machine: Literal["svm", "ridge"], table: SplitTable, grids: Grids, seed: int
) -> Candidates:
    for depth in range(1, grids.depth + 1):
        for fixed in range(depth) if which == "ntk" else [depth - 1]:
            gram = relu_gram(table.X, depth, fixed)
            network = {"depth": float(depth), "fixed": float(fixed)}
            if machine == "svm":
                for cost in grids.costs:
                    yield {**network, "C": cost}, partial(_predict_svm, gram, table.y, cost)
            else:
                for ridge in grids.ridges:
                    yield {**network, "ridge": ridge}, partial(_predict_ridge, gram, table.y, ridge)


def _rbf_candidates(table: SplitTable, grids: Grids, seed: int) -> Candidates:
    distances = euclidean_distances(table.X, squared=True)
    for gamma in (multiple / table.X.shape[1] for multiple in grids.gammas):
        gram = np.exp(-gamma * distances)
        for cost in grids.costs:
            yield {"gamma": gamma, "C": cost}, partial(_predict_svm, gram, table.y, cost)


def _forest_candidates(table: SplitTable, grids: Grids, seed: int) -> Candidates:
    features = table.X.shape[1]
    tried = {min(max(round(multiple * features**0.5), 1), features) for multiple in grids.forest_features}
    for count in sorted(tried):
        yield {"features": float(count)}, partial(_predict_forest, table, grids.trees, count, seed)


METHODS: dict[str, Callable[[SplitTable, Grids, int], Candidates]] = {
    "NTK SVM": partial(_kernel_candidates, "ntk", "svm"),
    "NNGP SVM": partial(_kernel_candidates, "nngp", "svm"),
    "NTK ridge": partial(_kernel_candidates, "ntk", "ridge"),
    "NNGP ridge": partial(_kernel_candidates, "nngp", "ridge"),
    "RBF SVM": _rbf_candidates,
    "random forest": _forest_candidates,
}
"""By name, what gives the candidates of a table, of grids and of a seed."""

# Almost only the linear kernel at large C reaches it; it would run for hours there, and its accuracy falls.
_MOST_ITERATIONS = 200_000


def _predict_svm(
    gram: NDArray[np.float64], y: NDArray[np.int64], cost: float, train: Index, test: Index
) -> NDArray[Any]:
    if len(np.unique(y[train])) == 1:
        return np.repeat(y[train[:1]], len(test))
    model = SVC(kernel="precomputed", C=cost, max_iter=_MOST_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(gram[np.ix_(train, train)], y[train])
    return np.asarray(model.predict(gram[np.ix_(test, train)]))


def _predict_ridge(
    gram: NDArray[np.float64], y: NDArray[np.int64], ridge: float, train: Index, test: Index
) -> NDArray[Any]:
    if len(np.unique(y[train])) == 1:
        return np.repeat(y[train[:1]], len(test))
    # A trained bias at the output, as large as the kernel: a support vector machine has an intercept of its own.
    bias = gram[train, train].mean()
    model = NTKClassifier(kernel="precomputed", ridge=ridge, calibration=None)
    model.fit(gram[np.ix_(train, train)] + bias, y[train])
    return np.asarray(model.predict(gram[np.ix_(test, train)] + bias))


def _predict_forest(table: SplitTable, trees: int, features: int, seed: int, train: Index, test: Index) -> NDArray[Any]:
    model = RandomForestClassifier(trees, max_features=features, random_state=seed)
    return np.asarray(model.fit(table.X[train], table.y[train]).predict(table.X[test]))


def _share_right(predict: Predictor, y: NDArray[np.int64], train: Index, test: Index) -> float:
    return float(np.mean(predict(train, test) == y[test]))
