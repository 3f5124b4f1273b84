from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV

import ntkit
from ntkit.datasets import balanced_split, load_digits
from ntkit_studies import _digits_methods as methods


@pytest.fixture(scope="module")
def sets():
    digits = load_digits()
    return tuple(digits.take(index) for index in balanced_split(digits.labels, [60, 50], 0))


def test_ridge_is_that_of_scikit_learn(sets):
    train, test = sets
    x, y = methods._rows(train), train.labels.numpy()

    def share(model, x, targets):
        return float(np.mean(model.predict(x).argmax(axis=1) == targets.argmax(axis=1)))

    grid = {"alpha": list(methods._RIDGES), "gamma": methods._gammas(x)}
    model = GridSearchCV(KernelRidge(kernel="rbf"), grid, scoring=share, cv=methods._folds(x, y, 3))
    expected = model.fit(x, np.eye(10)[y] - 0.1).predict(methods._rows(test)).argmax(axis=1)
    np.testing.assert_array_equal(methods.predict_ridge(train, test, 3), expected)


def test_label_aware_predictions_are_those_of_the_classifier(sets):
    train, test = sets
    kernel = ntkit.infinite_width(methods.dense_net()).ntk
    images = torch.cat([train.images, test.images])
    index = torch.arange(len(train))
    columns = kernel(images, train.images).numpy()
    found = methods.predict_label_aware(kernel, columns, images, train.labels, index, 2)
    model = ntkit.LabelAwareClassifier(methods.dense_net(), input_shape=(1, 8, 8), pairs="fjlt-v1", random_state=2)
    model.fit(methods._rows(train), train.labels.numpy())
    assert np.mean(found == model.predict(methods._rows(test))) > 0.9


def test_the_network_is_trained_until_it_fits(sets):
    train, _ = sets
    own = methods.predict_cnn(train, train, 1, "average", 16)
    assert np.mean(own == train.labels.numpy()) == 1  # a loss below 0.05 leaves no room for mistakes
    barely = methods.predict_cnn(train, train, 1, "average", 16, max_steps=1)
    assert np.mean(barely == train.labels.numpy()) < 0.7
    np.testing.assert_array_equal(own, methods.predict_cnn(train, train, 1, "average", 16))


@pytest.mark.parametrize("predict", [methods.predict_svm, methods.predict_forest, methods.predict_ridge])
def test_every_classifier_learns(sets, predict):
    train, test = sets
    assert np.mean(predict(train, test, 0) == test.labels.numpy()) > 0.7
