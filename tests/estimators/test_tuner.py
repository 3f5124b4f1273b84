"""Early stopping, tuning and standard deviations against refits and explicit matrix functions in float64."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import expm
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.model_selection import GridSearchCV
from torch import Tensor, nn

import ntkit
from ntkit._src.estimators import _base
from ntkit._src.estimators._training_data import KernelSource, read_source
from ntkit._src.estimators._tuner import read_tuner
from ntkit.errors import InputError, InputTypeError, JitterWarning, SingularKernelError

Array = NDArray[Any]


SHALLOW = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 1))


class Laplace(ntkit.Kernel):
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        distances = torch.cdist(x1, x1 if x2 is None else x2, compute_mode="donot_use_mm_for_euclid_dist")
        return 3 * torch.exp(-distances / 2)

    def diag(self, x: Tensor) -> Tensor:
        return x.new_full((len(x),), 3.0)


def laplace(x1: Array, x2: Array) -> Array:
    return 3 * np.exp(-np.linalg.norm(x1[:, None] - x2[None], axis=2) / 2)


def learnt(gram: Array, shift: float, time: float) -> Array:
    """A^-1 (I - exp(-A t)) of A = K + shift I, by a matrix exponential."""
    matrix = gram + shift * np.eye(len(gram))
    return np.linalg.solve(matrix, np.eye(len(gram)) - (0 if math.isinf(time) else expm(-time * matrix)))


def left_out(gram: Array, y: Array, ridge: float, time: float) -> Array:
    """Each point predicted by a refit without it, with the absolute ridge of all points."""
    shift, predictions = ridge * np.trace(gram) / len(gram), np.empty_like(y)
    for point in range(len(gram)):
        rest = np.delete(np.arange(len(gram)), point)
        predictions[point] = gram[point, rest] @ learnt(gram[np.ix_(rest, rest)], shift, time) @ y[rest]
    return predictions


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    X, y = make_friedman1(44, 5, noise=1.0, random_state=0)
    y = (y - y.mean()) / y.std()
    return X - 0.5, np.stack([y, np.roll(y, 1) + y], axis=1)


@pytest.mark.parametrize("outputs", [slice(None), 0])
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("time", [0.0, 0.01, 0.3, 20.0, math.inf])
def test_stopped_regression(data: tuple[Array, Array], time: float, ridge: float, outputs: Any) -> None:
    X, y = data[0], data[1][:, outputs]
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=ridge, stopping_time=time).fit(X[:30], y[:30])
    gram = laplace(X[:30], X[:30])
    expected = laplace(X[30:], X[:30]) @ learnt(gram, ridge * 3.0, time) @ y[:30]
    np.testing.assert_allclose(model.predict(X[30:]), expected, atol=1e-9)
    assert model.stopping_time_ == time
    assert model.dual_coef_.shape == y[:30].shape


def test_stopped_classifier_and_precomputed() -> None:
    X, y = load_iris(return_X_y=True)
    gram = laplace(X, X)
    direct = ntkit.NTKClassifier(kernel=Laplace(), stopping_time=0.2).fit(X[::2], y[::2])
    given = ntkit.NTKClassifier(kernel="precomputed", stopping_time=0.2).fit(gram[::2, ::2], y[::2])
    expected = gram[1::2, ::2] @ learnt(gram[::2, ::2], 0.0, 0.2) @ (np.eye(3)[y[::2]] - 1 / 3)
    np.testing.assert_allclose(direct.decision_function(X[1::2]), expected, atol=1e-9)
    np.testing.assert_allclose(given.decision_function(gram[1::2, ::2]), expected, atol=1e-9)
    assert direct.score(X[1::2], y[1::2]) > 0.9


@pytest.mark.parametrize(
    ("ridges", "times"),
    [
        ([0.0, 1e-3, 1e-2, 0.1, 1.0], None),
        (0.0, [0.01, 0.1, 1.0, math.inf]),
        (0.05, [0.01, 0.1, 1.0, 10.0]),
        ([1e-3, 0.1, 3.0], [0.1, 1.0, math.inf]),
        (np.array([1e-3, 0.1, 3.0]), torch.tensor([0.1, 1.0])),
    ],
)
def test_leave_one_out_tuning_is_that_of_refits(data: tuple[Array, Array], ridges: Any, times: Any) -> None:
    X, y = data
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=ridges, stopping_time=times, tune="loo").fit(X, y)
    gram = laplace(X, X)
    pairs = [
        (float(ridge), float(time))
        for ridge in np.atleast_1d(ridges)
        for time in np.atleast_1d(math.inf if times is None else times)
    ]
    errors = [((left_out(gram, y, *pair) - y) ** 2).mean() for pair in pairs]
    assert (model.ridge_, model.stopping_time_) == pairs[int(np.argmin(errors))]
    np.testing.assert_allclose(model.tuning_.errors, errors, rtol=1e-6)
    again = ntkit.NTKRegressor(kernel=Laplace(), ridge=model.ridge_, stopping_time=model.stopping_time_).fit(X, y)
    np.testing.assert_allclose(model.predict(X[:5] + 0.1), again.predict(X[:5] + 0.1), atol=1e-10)
    assert again.tuning_ is None


def test_what_is_tuned_by_default(data: tuple[Array, Array]) -> None:
    X, y = data
    ridge_alone = ntkit.NTKRegressor(tune="loo").fit(X, y)
    assert len(ridge_alone.tuning_.ridges) == 19 and set(ridge_alone.tuning_.times.tolist()) == {math.inf}
    np.testing.assert_allclose(ridge_alone.tuning_.ridges, 10.0 ** np.arange(-8, 1.25, 0.5))
    stopped = ntkit.NTKRegressor(tune="loo", ridge=0.01, stopping_time=0.3).fit(X, y)
    assert set(stopped.tuning_.times.tolist()) == {0.3} and len(set(stopped.tuning_.ridges.tolist())) == 19
    time_alone = ntkit.NTKRegressor(tune="loo", ridge=0.01, stopping_time="auto").fit(X, y)
    assert set(time_alone.tuning_.ridges.tolist()) == {0.01} and len(time_alone.tuning_.times) == 22
    assert float(time_alone.tuning_.times[-1]) == math.inf
    both = ntkit.NTKRegressor(tune="loo", ridge="auto", stopping_time="auto").fit(X[:20], y[:20])
    assert len(both.tuning_.errors) == 19 * 22
    assert float(both.tuning_.errors.min()) == float(both.tuning_.errors[both.tuning_.best])
    single = ntkit.NTKRegressor(tune="loo", dtype="float32").fit(X, y)
    assert min(single.tuning_.ridges.tolist()) == pytest.approx(1e-5)


def test_kernel_scale_changes_nothing_but_the_unit_of_time(data: tuple[Array, Array]) -> None:
    X, y = data
    plain, scaled = (
        ntkit.NTKRegressor(kernel=kernel, tune="loo", stopping_time="auto").fit(X, y)
        for kernel in (Laplace(), 100 * Laplace())
    )
    assert plain.stopping_time_ == pytest.approx(100 * scaled.stopping_time_)
    np.testing.assert_allclose(plain.predict(X + 0.1), scaled.predict(X + 0.1), atol=1e-8)


def test_tuning_helps_on_noisy_targets() -> None:
    X, y = make_friedman1(400, noise=10.0, random_state=0)
    y = (y - y.mean()) / y.std()
    scores = {
        name: ntkit.NTKRegressor(b_std=0.1, **parameters).fit(X[:200], y[:200]).score(X[200:], y[200:])
        for name, parameters in {
            "none": {},
            "ridge": {"tune": "loo"},
            "time": {"tune": "loo", "stopping_time": "auto"},
            "evidence": {"tune": "evidence", "kernel": "nngp"},
        }.items()
    }
    assert min(scores["ridge"], scores["time"], scores["evidence"]) > scores["none"] + 0.1


@pytest.mark.parametrize("kernel", ["ntk", "nngp"])
def test_evidence_raises_the_likelihood_and_is_the_model_fitted(data: tuple[Array, Array], kernel: str) -> None:
    X, y = data
    model = ntkit.NTKRegressor(kernel=kernel, tune="evidence").fit(X, y)
    found = model.tuning_
    start = ntkit.evidence(_default(), torch.tensor(X), torch.tensor(y), kernel=kernel, max_steps=0)
    assert found.log_marginal_likelihood > start.log_marginal_likelihood + 1
    assert model.ridge_ == found.ridge
    again = ntkit.NTKRegressor(kernel=kernel, w_std=found.w_std, b_std=found.b_std, ridge=found.ridge).fit(X, y)
    np.testing.assert_allclose(model.predict(X + 0.1), again.predict(X + 0.1), rtol=1e-6, atol=1e-8)
    mean, std = model.predict(X + 0.1, return_std=True)
    np.testing.assert_allclose(std, again.predict(X + 0.1, return_std=True)[1], rtol=1e-6)
    assert mean.shape == std.shape == (44, 2)


def test_evidence_starts_from_what_is_given(data: tuple[Array, Array]) -> None:
    X, y = data
    model = ntkit.NTKRegressor(SHALLOW, kernel="nngp", w_std=1.0, b_std=0.5, ridge=0.3, tune="evidence").fit(X, y[:, 0])
    expected = ntkit.evidence(SHALLOW, torch.tensor(X), torch.tensor(y[:, 0]), w_std=1.0, b_std=0.5, ridge=0.3)
    assert (model.tuning_.w_std, model.tuning_.ridge) == (expected.w_std, expected.ridge)


def _default() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(5, 8), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize("ridge", [1e-3, 0.2])
def test_deviation_is_that_of_a_gaussian_process(data: tuple[Array, Array], ridge: float) -> None:
    X, y = data[0], data[1][:, 0]
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=ridge).fit(X[:30], y[:30])
    mean, std = model.predict(X[25:], return_std=True)
    process = GaussianProcessRegressor(ntkit.as_sklearn_kernel(Laplace()), alpha=3.0 * ridge, optimizer=None)
    expected = process.fit(X[:30], y[:30]).predict(X[25:], return_std=True)
    np.testing.assert_allclose(mean, expected[0], atol=1e-10)
    np.testing.assert_allclose(std, expected[1], atol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("time", [0.0, 0.05, 1.0])
def test_deviation_of_stopped_flows_from_draws_of_the_prior(
    data: tuple[Array, Array], ridge: float, time: float
) -> None:
    X, y = data[0], data[1][:, 0]
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=ridge, stopping_time=time).fit(X[:30], y[:30])
    gram, cross = laplace(X[:30], X[:30]), laplace(X[25:], X[:30])
    weights = cross @ learnt(gram, 3.0 * ridge, time)
    # f_0(x) - weights (f_0(X) + noise): the variance of a sum of jointly Gaussian terms.
    noisy = gram + 3.0 * ridge * np.eye(30)
    variance = 3.0 - 2 * (weights * cross).sum(1) + np.einsum("ai,ij,aj->a", weights, noisy, weights)
    np.testing.assert_allclose(model.predict(X[25:], return_std=True)[1] ** 2, variance, atol=1e-9)


@pytest.mark.parametrize("time", [None, 0.3])
def test_deviation_in_blocks_of_rows(
    data: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch, time: float | None
) -> None:
    X, y = data
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.1, stopping_time=time).fit(X[:30], y[:30])
    whole = model.predict(X, return_std=True)[1]
    monkeypatch.setattr(_base, "block_rows", lambda columns, itemsize: 7)
    np.testing.assert_allclose(model.predict(X, return_std=True)[1], whole, rtol=1e-12)


def test_deviation_in_float32(data: tuple[Array, Array]) -> None:
    X, y = data
    exact, single = (
        ntkit.NTKRegressor(kernel=Laplace(), ridge=0.1, dtype=dtype).fit(X[:30], y[:30]).predict(X, return_std=True)[1]
        for dtype in ("float64", "float32")
    )
    assert single.dtype == np.float64
    np.testing.assert_allclose(single, exact, atol=1e-4)


def test_deviation_at_training_points_and_of_singular_kernels(data: tuple[Array, Array]) -> None:
    X, y = data
    model = ntkit.NTKRegressor(kernel=Laplace()).fit(X, y)
    assert model.predict(X, return_std=True)[1].max() < 1e-6
    far = model.predict(np.full((1, 5), 1e3), return_std=True)[1]
    np.testing.assert_allclose(far, 3**0.5)
    with pytest.warns(JitterWarning):
        repeated = ntkit.NTKRegressor(kernel=Laplace()).fit(np.vstack([X, X]), np.vstack([y, y]))
    assert repeated.jitter_ > 0
    std = repeated.predict(X, return_std=True)[1]
    assert np.isfinite(std).all() and std.max() < 1e-3


def test_deviation_needs_the_diagonal(data: tuple[Array, Array]) -> None:
    gram = laplace(data[0], data[0])
    model = ntkit.NTKRegressor(kernel="precomputed").fit(gram, data[1])
    with pytest.raises(InputError, match=r"K\(x, x\), which a precomputed kernel does not provide"):
        model.predict(gram, return_std=True)


def test_order_of_the_samples_does_not_matter(data: tuple[Array, Array]) -> None:
    X, y = data
    order = np.random.default_rng(0).permutation(len(X))
    for parameters in ({"tune": "loo"}, {"tune": "loo", "stopping_time": "auto"}):
        first = ntkit.NTKRegressor(b_std=0.1, **parameters).fit(X, y)
        second = ntkit.NTKRegressor(b_std=0.1, **parameters).fit(X[order], y[order])
        np.testing.assert_allclose(second.predict(X + 0.1), first.predict(X + 0.1), atol=1e-4)


@pytest.mark.parametrize(
    "parameters", [{"tune": "loo"}, {"tune": "evidence", "module": SHALLOW}, {"stopping_time": 1.0}]
)
def test_clone_pickle_and_search(data: tuple[Array, Array], parameters: dict[str, Any]) -> None:
    X, y = data[0][:20], data[1][:20]
    model = ntkit.NTKRegressor(b_std=0.1, **parameters).fit(X, y)
    expected = model.predict(X, return_std=True)
    for copy in (pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)):
        np.testing.assert_allclose(copy.predict(X, return_std=True), expected, rtol=1e-6, atol=1e-9)
    halves = [(np.arange(10), np.arange(10, 20))]
    search = GridSearchCV(clone(model), {"w_std": [1.0, 1.5]}, cv=halves).fit(X, y)
    assert search.best_estimator_.ridge_ >= 0


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"tune": "cv"}, InputError, r"'loo', 'evidence' or None. Got 'cv'"),
        ({"tune": True}, InputError, r"Got True"),
        ({"ridge": [0.1, 1.0]}, InputError, r"candidates for ridge need tune='loo'"),
        ({"ridge": "auto", "tune": "evidence"}, InputError, r"candidates for ridge need tune='loo'"),
        ({"stopping_time": "auto"}, InputError, r"candidates for stopping_time need tune='loo'"),
        ({"stopping_time": 1.0, "tune": "evidence"}, InputError, r"stopping_time must be None. Got 1.0"),
        ({"ridge": [], "tune": "loo"}, InputError, r"at least one number"),
        ({"ridge": [0.1, -1.0], "tune": "loo"}, InputError, r"ridge must be finite and at least 0"),
        ({"ridge": [0.1, "a"], "tune": "loo"}, InputTypeError, r"ridge must be a number"),
        ({"ridge": "best", "tune": "loo"}, InputTypeError, r"'auto' or a sequence of numbers. Got 'best'"),
        ({"ridge": math.inf}, InputError, r"finite"),
        ({"ridge": math.nan}, InputError, r"at least 0"),
        ({"stopping_time": -1.0}, InputError, r"stopping_time must be finite and at least 0. Got -1.0"),
        ({"stopping_time": math.nan}, InputError, r"at least 0"),
        ({"stopping_time": True}, InputTypeError, r"stopping_time must be a number. Got True"),
        ({"kernel": Laplace(), "tune": "evidence"}, InputError, r"kernel must be 'ntk' or 'nngp'"),
        ({"kernel": "precomputed", "tune": "evidence"}, InputError, r"kernel must be 'ntk' or 'nngp'"),
        ({"tune": "evidence", "w_std": 1e9}, InputError, r"w_std must start between"),
    ],
)
@pytest.mark.parametrize("kind", [ntkit.NTKRegressor, ntkit.NTKClassifier])
def test_bad_parameters_are_explained(
    data: tuple[Array, Array], kind: Any, parameters: dict[str, Any], error: type[Exception], message: str
) -> None:
    X = laplace(data[0], data[0]) if parameters.get("kernel") == "precomputed" else data[0]
    with pytest.raises(error, match=message):
        kind(**parameters).fit(X, np.arange(44) % 2)


def test_one_sample_cannot_be_left_out() -> None:
    with pytest.raises(InputError, match=r"n_samples=1"):
        ntkit.NTKRegressor(tune="loo").fit([[1.0]], [1.0])


@pytest.mark.filterwarnings("ignore::ntkit.errors.JitterWarning")  # right in float32
@pytest.mark.parametrize(
    ("parameters", "rounded"),
    [
        ({"stopping_time": 1.0}, False),
        ({"stopping_time": 1.0, "ridge": 1e-5}, True),
        ({"tune": "loo"}, False),
        ({"tune": "loo"}, True),
        ({"tune": "loo", "stopping_time": "auto"}, False),
        ({"tune": "loo", "stopping_time": "auto", "ridge": [0.0]}, True),
    ],
)
def test_gram_matrices_that_rounding_made_indefinite(parameters: dict[str, Any], rounded: bool) -> None:
    """The NTK of a line has rank two or so: in float32 most of its eigenvalues are rounding of either sign."""
    X, y = np.linspace(-1, 1, 300)[:, None], np.arange(300) // 100
    if rounded:
        limit = ntkit.infinite_width(nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1)))
        X = limit.ntk(torch.from_numpy(X)).float().double().numpy()
        assert np.linalg.eigvalsh(X)[0] < -1e-7
        model = ntkit.NTKClassifier(kernel="precomputed", **parameters)
    else:
        model = ntkit.NTKClassifier(dtype="float32", **parameters)
    assert np.isfinite(model.fit(X, y).predict_proba(X)).all()
    assert model.score(X, y) > 0.6


def test_an_indefinite_kernel_is_still_refused(data: tuple[Array, Array]) -> None:
    gram = laplace(data[0], data[0]) - np.eye(44)
    with pytest.raises(SingularKernelError, match=r"not positive semidefinite"):
        ntkit.NTKRegressor(kernel="precomputed", tune="loo").fit(gram, data[1])


def test_tuners_alone(data: tuple[Array, Array]) -> None:
    """Each chooses what it is for and leaves the rest as it was given."""
    x, y = torch.from_numpy(data[0]), torch.from_numpy(data[1])
    source = read_source("nngp", SHALLOW, None, 5, None, 0.2)
    gram = source.kernel(x)
    fixed = read_tuner(None, 0.3, 2.0)
    choice = fixed.choose_kernel(source, x, y, None)
    assert (choice.kernel, choice.ridge, choice.time, choice.record) == (source.kernel, 0.3, 2.0, None)
    assert fixed.choose_ridge(choice, gram, y) == choice and fixed.spectral and fixed.ridges(torch.float64) == [0.3]
    loo = read_tuner("loo", [1e-6, 1e-1], None)
    kept = loo.choose_kernel(source, x, y, None)
    chosen = loo.choose_ridge(kept, gram, y)
    assert kept.kernel is source.kernel and chosen.ridge == ntkit.leave_one_out(gram, y, [1e-6, 1e-1]).ridge
    # In a system whose unit is 10, the same matrix means ridges a tenth as large.
    assert read_tuner("loo", [1e-7, 1e-2], None).choose_ridge(kept, gram, y, unit=10.0).ridge == pytest.approx(
        chosen.ridge / 10
    )
    found = read_tuner("evidence", 0.0, None, None, 0.2).choose_kernel(source, x, y, None)
    assert found.record.log_marginal_likelihood > -1e4 and found.ridge == found.record.ridge
    auto = read_tuner("auto", 0.0, None, None, 0.2)
    gains = auto.choose_kernel(source, x, y, None)
    assert gains.kernel.limit.gains.w_std != 2**0.5 and gains.record is None and len(auto.ridges(torch.float32)) == 13
    given = KernelSource(Laplace())
    assert auto.choose_kernel(given, x, y, None).kernel is given.kernel
