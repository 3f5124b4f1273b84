"""LabelAwareClassifier against explicit formulas, and scikit-learn's own checks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.cases import mlp
from torch import Tensor, nn

import ntkit
from ntkit._src.common import data_splits
from ntkit._src.estimators._labels import fit_temperature
from ntkit.errors import InputError, InputTypeError, NotFittedError

X, Y = load_digits(return_X_y=True)


class Cubic(ntkit.Kernel):
    """(1 + x.x')^3: a user's kernel."""

    def __repr__(self):  # test names must be the same in every process
        return "Cubic()"

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return (1 + x1 @ (x1 if x2 is None else x2).T) ** 3

    def diag(self, x: Tensor) -> Tensor:
        return (1 + (x * x).sum(1)) ** 3


def _module() -> nn.Module:
    """A convolution over the features, so that one module takes the many numbers of features of the checks."""
    layers = nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, 1))


# Calibration multiplies the time of a fit by six and does not depend on the pairs: the first has it, and the slow one.
SEARCHED = ntkit.LabelAwareClassifier(kernel=Cubic(), pairs="kr-v2", strength=[0.1, 1.0], ridge=1e-3)
ESTIMATORS = [
    ntkit.LabelAwareClassifier(),
    ntkit.LabelAwareClassifier(kernel=Cubic(), pairs="fjlt-v2", strength=0.1, ridge=0.1, calibration=None),
    ntkit.LabelAwareClassifier(module=_module(), pairs="fjlt-v1", strength=1.0, ridge=0.1, calibration=None),
]


def _expected_failures(estimator: Any) -> dict[str, str]:
    reason = "the kernel counts every pair of points once, whatever their weights"
    expected = {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}
    expected["check_class_weight_classifiers"] = "the kernel has seen every label, whatever its weight"
    if estimator.module is not None:
        expected["check_estimators_overwrite_params"] = "joblib hashes two equal nn.Modules differently"
    return expected


# The checks fit on repeated and constant inputs, where the jitter warning is right.
@pytest.mark.filterwarnings("ignore::ntkit.errors.JitterWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=_expected_failures, xfail_strict=True)  # type: ignore[untyped-decorator]
def test_sklearn_check(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ntkit.errors.JitterWarning")
@parametrize_with_checks([SEARCHED], expected_failed_checks=_expected_failures, xfail_strict=True)  # type: ignore[untyped-decorator]
def test_sklearn_check_of_a_search(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("digits", [(3, 5), (1, 7, 8)])
@pytest.mark.parametrize("strength", [0.1, 30.0])  # the second leaves a Gram matrix that is not positive semidefinite
@pytest.mark.parametrize("pairs", ["kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2"])
def test_scores(pairs, strength, digits):
    rows = np.isin(Y, digits).nonzero()[0][:90]
    x, y = X[rows] / 16, np.array([f"digit {label}" for label in Y[rows]])
    train, test = slice(0, 60), slice(60, 90)
    base = ntkit.infinite_width(mlp(64, 8, 1), b_std=0.2).ntk
    model = ntkit.LabelAwareClassifier(kernel=base, pairs=pairs, strength=strength, ridge=1e-3).fit(x[train], y[train])
    codes = torch.from_numpy(np.searchsorted(model.classes_, y[train]))
    kernel = ntkit.LabelAware(base, pairs, strength, ridge=1e-3).fit(torch.from_numpy(x[train]), codes)
    gram, cross = (
        kernel(torch.from_numpy(x[train])).numpy(),
        kernel(*map(torch.from_numpy, (x[test], x[train]))).numpy(),
    )
    values, vectors = np.linalg.eigh(gram)
    assert model.definiteness_.smallest == pytest.approx(values[0], rel=1e-6, abs=1e-9)
    assert ("indefinite" in model.solution_status_) == (values[0] < 0)
    inverse = vectors / (values + 1e-3 * np.abs(values).mean() * np.sign(values)) @ vectors.T
    targets = 2.0 * codes.numpy() - 1 if len(digits) == 2 else np.eye(3)[codes] - 1 / 3
    scores = cross @ inverse @ targets
    np.testing.assert_allclose(model.decision_function(x[test]), scores, rtol=0, atol=1e-6 * np.abs(scores).max())
    named = (scores > 0).astype(int) if len(digits) == 2 else scores.argmax(1)
    assert (model.predict(x[test]) == model.classes_[named]).all()
    assert model.predict_proba(x[test]).sum(1) == pytest.approx(1)


def test_some_strength_is_too_much():
    """The cases above do reach matrices that are not positive semidefinite."""
    rows = np.isin(Y, (3, 5))
    model = ntkit.LabelAwareClassifier(pairs="fjlt-v1", strength=30.0, ridge=1e-3).fit(X[rows][:60], Y[rows][:60])
    assert model.definiteness_.negative > 0 and "indefinite" in model.solution_status_ and model.jitter_ == 0


def test_an_indefinite_kernel_is_not_lost():
    """Adding what makes the matrix definite to its diagonal costs nine points here."""
    rows = np.isin(Y, (3, 5)).nonzero()[0]
    x, y = X[rows] / 16 + 0.6 * np.random.default_rng(0).standard_normal((len(rows), 64)), Y[rows]
    convolution = {"kernel_size": 3, "padding": 1, "bias": False}
    net = nn.Sequential(
        nn.Conv2d(1, 1, **convolution), nn.ReLU(), nn.Conv2d(1, 1, **convolution), nn.ReLU(), nn.Flatten(),
        nn.Linear(64, 1, bias=False),
    )  # fmt: skip
    options: dict[str, Any] = {"input_shape": (1, 8, 8), "calibration": None}
    plain = ntkit.NTKClassifier(net, **options).fit(x[:120], y[:120]).predict(x[120:]) == y[120:]
    model = ntkit.LabelAwareClassifier(net, pairs="kr-v1", strength=1.0, **options).fit(x[:120], y[:120])
    aware = model.predict(x[120:]) == y[120:]
    assert model.definiteness_.negative == 1
    error = np.std(aware.astype(float) - plain) / len(plain) ** 0.5
    assert aware.mean() > plain.mean() - error
    points = torch.from_numpy(x).reshape(-1, 1, 8, 8)
    gram, cross = model.kernel_(points[:120]), model.kernel_(points[120:], points[:120])
    signs = torch.where(torch.from_numpy(y[:120]) == 5, 1.0, -1.0).double()
    direct = cross @ torch.linalg.solve(gram, signs)
    np.testing.assert_allclose(model.decision_function(x[120:]), direct, rtol=0, atol=1e-9 * float(direct.abs().max()))
    shifted = gram - 2 * model.definiteness_.smallest * torch.eye(120)
    lost = (cross @ torch.linalg.solve(shifted, signs) > 0).numpy() == (y[120:] == 5)
    assert lost.mean() < aware.mean() - 0.05


def test_repeated_points():
    """Their matrix is singular: the shortest least-squares solution, which predicts their mean."""
    rows = np.isin(Y, (3, 5)).nonzero()[0][:40]
    x, y = np.repeat(X[rows] / 16, 2, 0), np.repeat(Y[rows], 2)
    model = ntkit.LabelAwareClassifier(strength=0.1, calibration=None).fit(x, y)
    once = ntkit.LabelAwareClassifier(strength=0.1, calibration=None).fit(x[::2], y[::2])
    assert "singular" in model.solution_status_
    np.testing.assert_allclose(
        model.decision_function(X[:9] / 16), once.decision_function(X[:9] / 16), rtol=1e-6, atol=1e-8
    )


def test_chooses_the_strength():
    model = ntkit.LabelAwareClassifier(pairs="fjlt-v1", ridge=1e-3, random_state=0).fit(X[:200], Y[:200])
    assert model.search_.strengths == (0.001, 0.01, 0.1, 1.0)
    assert model.strength_ == model.search_.strength
    fixed = ntkit.LabelAwareClassifier(pairs="fjlt-v1", ridge=1e-3, strength=model.strength_).fit(X[:200], Y[:200])
    np.testing.assert_allclose(fixed.decision_function(X[200:220]), model.decision_function(X[200:220]), rtol=1e-9)
    assert fixed.search_ is None
    again = clone(model).fit(X[:200], Y[:200])
    assert again.search_ == model.search_


def test_images_in_single_precision():
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 1))
    model = ntkit.LabelAwareClassifier(
        net, input_shape=(1, 8, 8), pairs="fjlt-v2", strength=0.01, ridge=1e-3, dtype="float32"
    )
    assert model.fit(X[:300], Y[:300]).score(X[300:600], Y[300:600]) > 0.85
    assert isinstance(model.kernel_, ntkit.LabelAware)


def test_pipelines():
    model = ntkit.LabelAwareClassifier(ridge=1e-3, random_state=0).fit(X[:100], Y[:100])
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(restored.predict_proba(X[100:110]), model.predict_proba(X[100:110]), rtol=1e-12)
    search = GridSearchCV(model, {"pairs": ["kr-v1", "fjlt-v1"], "strength": [0.1]}, cv=2).fit(X[:100], Y[:100])
    assert search.best_score_ > 0.7


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"kernel": "precomputed"}, InputError, "needs the inputs"),
        ({"strength": "best"}, InputError, "'auto'"),
        ({"calibration": "platt"}, InputError, "'cv' or None. Got 'platt'"),
        ({"strength": -0.1}, InputError, "at least 0"),
        ({"pairs": "kr"}, InputError, "pairs must be"),
        ({"ridge": "auto"}, InputTypeError, "ridge must be a number"),
        ({"ridge": [0.1, 1.0]}, InputTypeError, "ridge must be a number"),
        ({"solver": "exact"}, InputError, "solver must be one of 'auto', 'cholesky'"),
        ({"kernel": "rbf"}, InputError, "kernel must be"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        ntkit.LabelAwareClassifier(**parameters).fit(X[:64], Y[:64])


class Memory:
    """Knows "same class?" of the pairs it was fitted to, and nothing of others."""

    def fit(self, pairs, labels):
        self.labels = {tuple(row.tolist()): label for row, label in zip(pairs.x1, labels, strict=True)}

    def __call__(self, pairs):
        sides = [self._known(x, pairs.k) for x in (pairs.x1, pairs.x1 if pairs.x2 is None else pairs.x2)]
        return sides[0] @ sides[1].T

    def _known(self, x, like):
        nothing = torch.zeros(len(next(iter(self.labels.values()))), dtype=torch.float64)
        return torch.stack([self.labels.get(tuple(row.tolist()), nothing) for row in x]).to(like)


@pytest.mark.parametrize("classes", [2, 3])
def test_calibration_sees_no_label_that_its_kernel_has_seen(classes):
    """Labels are noise, and the kernel knows those it was fitted to: only points it has not seen tell how little it knows."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 6)), rng.integers(0, classes, 300)
    model = ntkit.LabelAwareClassifier(pairs=Memory(), strength=10.0, ridge=1e-3, random_state=0).fit(x[:100], y[:100])
    assert model.temperature_ > 0.9
    probabilities = model.predict_proba(x[100:])
    assert -np.log(probabilities[np.arange(200), y[100:]]).mean() < np.log(classes) + 0.05
    # The leave-one-out formula on the fitted kernel's matrix, which knows every label, believes in every one of them.
    gram = model.kernel_(torch.from_numpy(x[:100])).numpy()
    fooled = ntkit.NTKClassifier(kernel="precomputed", ridge=1e-3).fit(gram, y[:100])
    assert fooled.temperature_ < 0.5 * model.temperature_


def test_calibration_is_that_of_refits_without_each_fold():
    rows = np.isin(Y, (3, 5, 8)).nonzero()[0][:60]
    x, y = torch.from_numpy(X[rows] / 16), np.searchsorted([3, 5, 8], Y[rows])
    base = ntkit.infinite_width(mlp(64, 8, 1), b_std=0.2).ntk
    model = ntkit.LabelAwareClassifier(kernel=base, ridge=1e-2, strength=0.3, random_state=7).fit(x.numpy(), y)
    seed = int(np.random.RandomState(7).randint(2**31 - 1))
    scores = np.empty((60, 3))
    for rest, held in data_splits(60, 5, seed, y):
        alone = clone(model).set_params(calibration=None).fit(x[rest].numpy(), y[rest])
        scores[held] = alone.decision_function(x[held].numpy())
    assert model.temperature_ == pytest.approx(fit_temperature(3 * scores, y), rel=1e-5)
    assert clone(model).set_params(calibration=None).fit(x.numpy(), y).temperature_ == 1


def test_a_given_label_aware_kernel_brings_its_settings():
    base = Cubic()
    settings = {"pairs": "fjlt-v1", "strength": [0.01, 1.0], "ridge": 1e-3}
    given = ntkit.LabelAware(base, **settings, validation=3, generator=torch.Generator().manual_seed(0))
    model = ntkit.LabelAwareClassifier(kernel=given, ridge=1e-3, calibration=None).fit(X[:90] / 16, Y[:90])
    assert model.search_.strengths == (0.01, 1.0)
    with pytest.raises(InputError, match="call fit"):
        given(torch.from_numpy(X[:3]))  # the user's object was not fitted
    fixed = ntkit.LabelAwareClassifier(
        kernel=base, pairs="fjlt-v1", strength=model.strength_, ridge=1e-3, calibration=None
    ).fit(X[:90] / 16, Y[:90])
    np.testing.assert_allclose(
        fixed.decision_function(X[90:99] / 16), model.decision_function(X[90:99] / 16), rtol=1e-7, atol=1e-9
    )
    assert clone(model).fit(X[:90] / 16, Y[:90]).strength_ in (0.01, 1.0)
    sketch = ntkit.LabelAware(base, "fjlt-v1", 0.1, solver="fjlt", eps=0.4, generator=torch.Generator().manual_seed(0))
    assert (
        ntkit.LabelAwareClassifier(kernel=sketch, ridge=1e-2).fit(X[:90] / 16, Y[:90]).score(X[90:190] / 16, Y[90:190])
        > 0.7
    )


def test_weights_count_in_the_regression():
    """The system of the weighted squared error, on the kernel of all points."""
    rows = np.isin(Y, (3, 5, 8)).nonzero()[0][:60]
    x, y, weights = X[rows] / 16, np.searchsorted([3, 5, 8], Y[rows]), np.random.default_rng(0).uniform(0.5, 2, 60)
    model = ntkit.LabelAwareClassifier(strength=0.01, ridge=1e-2).fit(x, y, sample_weight=weights)
    gram = model.kernel_(torch.from_numpy(x)).numpy()
    root = np.sqrt(weights)
    system = root[:, None] * gram * root
    values, vectors = np.linalg.eigh(system)
    shift = 1e-2 * np.abs(values).sum() / weights.sum()
    inverse = vectors / (values + shift * np.sign(values)) @ vectors.T
    dual = root[:, None] * (inverse @ (root[:, None] * (np.eye(3)[y] - 1 / 3)))
    np.testing.assert_allclose(model.dual_coef_, dual, rtol=1e-6, atol=1e-8 * np.abs(dual).max())
    new = X[np.isin(Y, (3, 5, 8))][60:160] / 16
    heavier = clone(model).set_params(class_weight={0: 1.0, 1: 50.0, 2: 1.0}, calibration=None, ridge=1.0)
    plain = clone(heavier).set_params(class_weight=None)
    assert heavier.fit(x, y).decision_function(new)[:, 1].mean() > plain.fit(x, y).decision_function(new)[:, 1].mean()
    left = clone(model).set_params(calibration=None).fit(x, y, sample_weight=np.r_[np.ones(50), np.zeros(10)])
    alone = clone(model).set_params(calibration=None).fit(x[:50], y[:50])
    np.testing.assert_allclose(left.decision_function(x), alone.decision_function(x), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("solver", "accuracy"), [("cholesky", 1e-6), ("cg", 1e-4), (ntkit.solvers.Nystrom(59), 0.1)], ids=str
)
def test_solvers_of_a_definite_system(solver, accuracy):
    rows = np.isin(Y, (3, 5)).nonzero()[0][:60]
    options = {"strength": 0.01, "ridge": 1e-1, "calibration": None}
    exact, other = (
        ntkit.LabelAwareClassifier(solver=one, **options).fit(X[rows] / 16, Y[rows]) for one in (None, solver)
    )
    assert exact.definiteness_.negative == 0
    scores = exact.decision_function(X[:50] / 16)
    assert np.abs(other.decision_function(X[:50] / 16) - scores).max() < accuracy * np.abs(scores).max()
    assert other.dual_coef_.shape == (60,)


def test_one_class():
    with pytest.raises(InputError, match="two classes"):
        ntkit.LabelAwareClassifier().fit(X[:5], np.zeros(5))
    for name in ("definiteness_", "strength_", "search_"):
        with pytest.raises(NotFittedError):
            getattr(ntkit.LabelAwareClassifier(), name)
