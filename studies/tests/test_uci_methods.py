from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from ntkit_studies import _uci_methods, load_uci, uci
from ntkit_studies._uci_methods import METHODS, Grids, evaluate, relu_gram


@pytest.fixture(scope="module")
def iris():
    return next(table for table in load_uci() if table.name == "iris")


def arora_gram(X, depth, fixed):
    """The recursion of Arora et al. 2019c in NumPy: c_sigma = 1, inputs undivided, the first layers not trained."""
    sigma = X @ X.T
    theta = np.zeros_like(sigma)
    for layer in range(depth):
        if layer >= fixed:
            theta = theta + sigma
        if layer < depth - 1:
            norm = np.sqrt(np.outer(np.diag(sigma), np.diag(sigma)))
            angle = np.arccos(np.clip(sigma / norm, -1, 1))
            theta = theta * (np.pi - angle) / (2 * np.pi)
            sigma = norm * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    return theta


@pytest.mark.parametrize(("depth", "fixed"), [(depth, fixed) for depth in range(1, 6) for fixed in range(depth)])
def test_gram_is_that_of_the_paper(iris, depth, fixed):
    X = iris.X[::7]
    np.testing.assert_allclose(relu_gram(X, depth, fixed), arora_gram(X, depth, fixed), rtol=1e-7, atol=1e-9)


def test_building_networks_leaves_the_global_generator_alone(iris):
    before = torch.get_rng_state()
    relu_gram(iris.X[:5], 3, 1)
    assert torch.equal(torch.get_rng_state(), before)


def test_choice_is_made_on_validation_points_and_the_first_of_ties_wins(iris):
    seen = []

    def predictor(right):
        def predict(train, test):
            seen.append((len(train), len(test)))
            return np.where(np.arange(len(test)) < right, iris.y[test], -1)

        return predict

    candidates = [({"C": float(number)}, predictor(right)) for number, right in enumerate([3, 9, 9, 4])]
    outcome = evaluate(candidates, iris)
    assert outcome.choice == {"C": 1.0}
    assert outcome.validation == 9 / len(iris.validation)
    assert outcome.test == tuple(9 / len(test) for _, test in iris.folds)
    assert seen[:4] == [(len(iris.train), len(iris.validation))] * 4
    assert seen[4:] == [(len(train), len(test)) for train, test in iris.folds]


def test_test_labels_decide_nothing(iris):
    """Other labels on points that the choice does not see change the accuracy, never the choice."""
    kept = np.union1d(iris.train[:40], iris.validation[:40])
    hidden = np.setdiff1d(np.arange(len(iris)), kept)
    table = replace(iris, train=iris.train[:40], validation=iris.validation[:40])
    y = iris.y.copy()
    y[hidden] = (y[hidden] + 1) % 3
    for method in METHODS:
        outcomes = [evaluate(METHODS[method](t, uci.QUICK, 0), t) for t in (table, replace(table, y=y))]
        assert outcomes[0].choice == outcomes[1].choice
        assert outcomes[0].validation == outcomes[1].validation


def test_rbf_machine_is_that_of_scikit_learn(iris):
    grids = uci.QUICK
    best = None
    gammas = [multiple / 4 for multiple in grids.gammas]
    for gamma in gammas:
        for choice in ParameterGrid({"gamma": [gamma], "C": list(grids.costs)}):
            model = SVC(**choice).fit(iris.X[iris.train], iris.y[iris.train])
            accuracy = model.score(iris.X[iris.validation], iris.y[iris.validation])
            if best is None or accuracy > best[0]:
                best = accuracy, choice
    outcome = evaluate(METHODS["RBF SVM"](iris, grids, 0), iris)
    assert (outcome.validation, outcome.choice) == best
    expected = [
        SVC(**best[1]).fit(iris.X[train], iris.y[train]).score(iris.X[test], iris.y[test]) for train, test in iris.folds
    ]
    np.testing.assert_allclose(outcome.test, expected)


def test_every_network_is_tried_and_nngp_trains_the_last_layer_alone(iris):
    tried = [(choice["depth"], choice["fixed"]) for choice, _ in METHODS["NTK SVM"](iris, Grids(costs=(1.0,)), 0)]
    assert tried == [(depth, fixed) for depth in range(1, 6) for fixed in range(depth)]
    tried = [(choice["depth"], choice["fixed"]) for choice, _ in METHODS["NNGP ridge"](iris, Grids(ridges=(1.0,)), 0)]
    assert tried == [(depth, depth - 1) for depth in range(1, 6)]
    assert len(Grids().gammas) == 15  # as many as there are networks


@pytest.mark.parametrize("predict", [_uci_methods._predict_svm, _uci_methods._predict_ridge])
def test_one_class_to_train_on_is_predicted(iris, predict):
    train = np.flatnonzero(iris.y == 2)[:6]
    np.testing.assert_array_equal(predict(relu_gram(iris.X, 2, 0), iris.y, 1.0, train, np.arange(4)), [2] * 4)
