"""What the digits experiment compares: networks, their kernels, and classifiers that use none of ntkit.

Every choice is either fixed here or made by cross-validation on the training images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import SVC
from torch import Tensor, nn

from ntkit.datasets import Digits
from ntkit.kernels import InfiniteWidthKernel

__all__ = [
    "Head",
    "conv_net",
    "dense_net",
    "kernel_columns",
    "predict_cnn",
    "predict_forest",
    "predict_ridge",
    "predict_svm",
]

Head = Literal["flatten", "average"]

# Multiples of 1 / (features x variance), the scale that scikit-learn calls "scale".
_GAMMAS = np.array([0.2, 1.0, 5.0])
_FOLDS = 5
_BATCH = 25
# Rates at which the networks learn their training images in the steps they have; an average over positions learns slower.
_RATES: dict[Head, float] = {"flatten": 0.01, "average": 0.02}


def dense_net() -> nn.Module:
    """Give a fully connected ReLU network of three hidden layers; the limit does not depend on the width."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU()]
    for _ in range(2):
        layers += [nn.Linear(16, 16), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(16, 10))


def conv_net(head: Head, width: int = 16) -> nn.Module:
    """Give a network of two 3x3 convolutions with ReLU, and a head that reads every position or their average."""
    body = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    if head == "flatten":
        return nn.Sequential(*body, nn.Flatten(), nn.Linear(64 * width, 10))
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def kernel_columns(
    kernel: InfiniteWidthKernel, points: Tensor, columns: int, progress: Callable[[int, int], None]
) -> NDArray[Any]:
    """Compute the kernel between all points and the first of them, those to train on.

    Parameters
    ----------
    kernel
        Any kernel of an infinitely wide network.
    points
        Shape (n, ...).
    columns
        How many points to train on.
    progress
        Called with the entries done and the entries there are.

    Returns
    -------
    ndarray of shape (n, columns)
    """
    train, test = points[:columns], points[columns:]
    own = columns * (columns + 1) // 2
    total = own + len(test) * columns
    square = kernel(train, progress=lambda done, _: progress(done, total))
    rest = kernel(test, train, progress=lambda done, _: progress(own + done, total))
    return np.asarray(torch.cat([square, rest]).numpy())


def predict_svm(train: Digits, test: Digits, seed: int) -> NDArray[Any]:
    """Predict by a support vector machine with an RBF kernel; C and gamma by cross-validation."""
    x, y = _rows(train), train.labels.numpy()
    grid = {"C": [1.0, 10.0, 100.0], "gamma": _gammas(x)}
    model = GridSearchCV(SVC(), grid, cv=_folds(x, y, seed))
    return np.asarray(model.fit(x, y).predict(_rows(test)))


def predict_ridge(train: Digits, test: Digits, seed: int) -> NDArray[Any]:
    """Predict by RBF kernel ridge regression on centred one-hot targets; ridge and gamma by cross-validation."""
    x, y = _rows(train), train.labels.numpy()
    grid = {"alpha": [1e-4, 1e-2, 1.0], "gamma": _gammas(x)}
    model = GridSearchCV(KernelRidge(kernel="rbf"), grid, scoring=_share_right, cv=_folds(x, y, seed))
    return np.asarray(model.fit(x, np.eye(10)[y] - 0.1).predict(_rows(test)).argmax(axis=1))


def predict_forest(train: Digits, test: Digits, seed: int) -> NDArray[Any]:
    """Predict by a random forest of 200 trees, scikit-learn's settings otherwise."""
    model = RandomForestClassifier(n_estimators=200, random_state=seed)
    return np.asarray(model.fit(_rows(train), train.labels.numpy()).predict(_rows(test)))


def predict_cnn(train: Digits, test: Digits, head: Head, width: int, steps: int, seed: int) -> NDArray[Any]:
    """Predict by the finite network, trained from He's initialisation by Adam on cross-entropy."""
    images, generator = train.images.float(), torch.Generator().manual_seed(seed)
    # Made without values first: layers would draw theirs from the global generator, which is the user's.
    with torch.device("meta"):
        net = conv_net(head, width)
    net.to_empty(device="cpu")
    for parameter in net.parameters():
        if parameter.ndim > 1:
            nn.init.kaiming_normal_(parameter, generator=generator)
        else:
            nn.init.zeros_(parameter)
    optimizer = torch.optim.Adam(net.parameters(), lr=_RATES[head])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = torch.randperm(len(train), generator=generator)[:_BATCH]
        loss = nn.functional.cross_entropy(net(images[batch]), train.labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return np.asarray(net(test.images.float()).argmax(dim=1).numpy())


def _rows(digits: Digits) -> NDArray[Any]:
    return np.asarray(digits.images.flatten(1).numpy())


def _gammas(x: NDArray[Any]) -> list[float]:
    return [float(gamma) for gamma in _GAMMAS / (x.shape[1] * x.var())]


def _folds(x: NDArray[Any], y: NDArray[Any], seed: int) -> Sequence[tuple[NDArray[Any], NDArray[Any]]]:
    folds = min(_FOLDS, int(np.bincount(y).min()))
    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y))


def _share_right(model: KernelRidge, x: NDArray[Any], targets: NDArray[Any]) -> float:
    return float(np.mean(model.predict(x).argmax(axis=1) == targets.argmax(axis=1)))
