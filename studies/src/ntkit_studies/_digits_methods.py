"""What the digits experiment compares: networks, their kernels, and classifiers that do not use ntkit.

Every choice is either fixed here or made by cross-validation on the training images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from torch import Tensor, nn

from ntkit import LabelAware, NTKClassifier, solve
from ntkit.datasets import Digits
from ntkit.labels import STRENGTHS
from ntkit.results import InfiniteWidthKernel

from ._networks import blank

__all__ = [
    "Head",
    "conv_net",
    "dense_net",
    "predict_cnn",
    "predict_forest",
    "predict_kernel",
    "predict_label_aware",
    "predict_ridge",
    "predict_svm",
]

Head = Literal["flatten", "average"]

# Multiples of 1 / (features x variance), the scale that scikit-learn calls "scale".
_GAMMAS = np.array([0.2, 1.0, 5.0])
_RIDGES = (1e-4, 1e-2, 1.0)
_FOLDS = 5
_BATCH, _RATE, _CHECK, _LOSS = 50, 0.01, 25, 0.05


def dense_net() -> nn.Module:
    """Return a fully connected ReLU network of three hidden layers, its weights zero; the limit does not depend on the width."""

    def make() -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU()]
        for _ in range(2):
            layers += [nn.Linear(16, 16), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(16, 10))

    return blank(make)


def conv_net(head: Head, width: int = 16) -> nn.Module:
    """Return two 3x3 convolutions with ReLU, and a head that reads every position or their average; its weights zero."""

    def make() -> nn.Module:
        body = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        if head == "flatten":
            return nn.Sequential(*body, nn.Flatten(), nn.Linear(64 * width, 10))
        return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))

    return blank(make)


def predict_kernel(columns: NDArray[Any], labels: Tensor, index: Tensor) -> NDArray[Any]:
    """Predict by kernel regression without ridge, which has nothing to choose and nothing random.

    Parameters
    ----------
    columns
        The kernel between all images and those of the pool, shape (pool + test, pool).
    labels
        Of the pool, shape (pool,).
    index
        The images of the pool to train on, shape (n,).

    Returns
    -------
    ndarray of shape (test,)
    """
    between = columns[:, index.numpy()]
    model = NTKClassifier(kernel="precomputed", calibration=None).fit(between[index.numpy()], labels[index].numpy())
    return np.asarray(model.predict(between[len(labels) :]))


def predict_label_aware(
    kernel: InfiniteWidthKernel, columns: NDArray[Any], images: Tensor, labels: Tensor, index: Tensor, seed: int
) -> NDArray[Any]:
    """Predict with the label-aware kernel K + strength Z(K), the strength by cross-validation on the training images.

    Parameters
    ----------
    kernel, columns
        The base kernel, and its values as in :func:`predict_kernel`.
    images
        Pool and test, shape (pool + test, 1, 8, 8).
    labels, index, seed
        Of the pool; the training images; of the folds.
    """
    between = torch.from_numpy(columns[:, index.numpy()])
    x, x_test = images[: len(labels)][index], images[len(labels) :]
    generator = torch.Generator().manual_seed(seed)
    folds = min(_FOLDS, int(torch.bincount(labels[index]).min()))
    aware = LabelAware(kernel, "fjlt-v1", STRENGTHS, validation=folds, generator=generator)
    gram = aware.fit_gram(x, labels[index], gram=between[index])
    cross = aware.from_base(between[len(labels) :], x_test, x)
    classes, codes = torch.unique(labels[index], return_inverse=True)
    targets = torch.nn.functional.one_hot(codes).to(gram) - 1 / len(classes)
    dual = solve(gram, targets, method="indefinite").value  # K + strength Z need not be positive definite
    return np.asarray(classes[(cross @ dual).argmax(1)])


def predict_svm(train: Digits, test: Digits, seed: int) -> NDArray[Any]:
    """Predict by a support vector machine with an RBF kernel; C and gamma by cross-validation."""
    x, y = _rows(train), train.labels.numpy()
    grid = {"C": [1.0, 10.0, 100.0], "gamma": _gammas(x)}
    model = GridSearchCV(SVC(), grid, cv=_folds(x, y, seed))
    return np.asarray(model.fit(x, y).predict(_rows(test)))


def predict_ridge(train: Digits, test: Digits, seed: int) -> NDArray[Any]:
    """Predict by RBF kernel ridge regression on centred one-hot targets; ridge and gamma by cross-validation.

    One eigendecomposition for each gamma and fold serves all ridges.
    """
    x, y = _rows(train), train.labels.numpy()
    targets, folds = np.eye(10)[y] - 0.1, _folds(x, y, seed)
    distances = euclidean_distances(x, squared=True)
    gammas = _gammas(x)
    shares = np.zeros((len(_RIDGES), len(gammas)))
    for number, gamma in enumerate(gammas):
        gram = np.exp(-gamma * distances)
        for fit, held_out in folds:
            scores = _ridge_scores(gram[np.ix_(fit, fit)], targets[fit], gram[np.ix_(held_out, fit)])
            shares[:, number] += [np.mean(one.argmax(axis=1) == y[held_out]) for one in scores]
    row, column = np.unravel_index(np.argmax(shares), shares.shape)
    gamma = gammas[column]
    cross = np.exp(-gamma * euclidean_distances(_rows(test), x, squared=True))
    scores = _ridge_scores(np.exp(-gamma * distances), targets, cross)
    return np.asarray(scores[row].argmax(axis=1))


def _ridge_scores(gram: NDArray[Any], targets: NDArray[Any], cross: NDArray[Any]) -> list[NDArray[Any]]:
    values, vectors = eigh(gram)
    left, right = cross @ vectors, vectors.T @ targets
    return [left @ (right / (values + ridge)[:, None]) for ridge in _RIDGES]


def predict_forest(train: Digits, test: Digits, seed: int) -> NDArray[Any]:
    """Predict by a random forest of 100 trees, scikit-learn's settings otherwise."""
    model = RandomForestClassifier(random_state=seed)
    return np.asarray(model.fit(_rows(train), train.labels.numpy()).predict(_rows(test)))


def predict_cnn(
    train: Digits, test: Digits, seed: int, head: Head = "flatten", width: int = 32, max_steps: int = 3000
) -> NDArray[Any]:
    """Predict by the finite network, trained from He's initialisation by Adam on cross-entropy until it fits.

    Training ends when the mean loss of the training images is below 0.05. A fixed number of steps would leave the network
    that averages over positions, which learns slowest, undertrained on the larger training sets.
    """
    images, generator = train.images.float(), torch.Generator().manual_seed(seed)
    net = conv_net(head, width)
    for parameter in net.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter, generator=generator)
    optimizer = torch.optim.Adam(net.parameters(), lr=_RATE)
    for step in range(1, max_steps + 1):
        batch = torch.randperm(len(train), generator=generator)[:_BATCH]
        loss = nn.functional.cross_entropy(net(images[batch]), train.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % _CHECK == 0:
            with torch.no_grad():
                if float(nn.functional.cross_entropy(net(images), train.labels)) < _LOSS:
                    break
    with torch.no_grad():
        return np.asarray(net(test.images.float()).argmax(dim=1).numpy())


def _rows(digits: Digits) -> NDArray[Any]:
    return np.asarray(digits.images.flatten(1).numpy())


def _gammas(x: NDArray[Any]) -> list[float]:
    return [float(gamma) for gamma in _GAMMAS / (x.shape[1] * x.var())]


def _folds(x: NDArray[Any], y: NDArray[Any], seed: int) -> Sequence[tuple[NDArray[Any], NDArray[Any]]]:
    folds = min(_FOLDS, int(np.bincount(y).min()))
    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y))
