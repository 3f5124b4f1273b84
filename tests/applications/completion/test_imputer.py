"""Matrix completion against dense kernel regression over all entries, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import ntkit
from ntkit._src.applications import NTKImputer
from ntkit.errors import InputError, InputTypeError, JitterWarning, NotFittedError, NtkitWarning, SingularKernelError


def low_rank(k: int, d: int, missing: float = 0.4, seed: int = 0, noise: float = 0.1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    full = rng.normal(size=(k, 3)) @ rng.normal(size=(3, d)) + rng.normal(size=d) + noise * rng.normal(size=(k, d))
    return full, np.where(rng.random((k, d)) < missing, np.nan, full)


def ntk(features: int, hidden_layers: int = 1) -> ntkit.Kernel:
    parts: list[nn.Module] = []
    for _ in range(hidden_layers):
        parts += [nn.Linear(features, 4), nn.ReLU()]
        features = 4
    return ntkit.infinite_width(nn.Sequential(*parts, nn.Linear(features, 1))).ntk


def unit_columns(matrix: Any) -> torch.Tensor:
    z = torch.from_numpy(np.nan_to_num(matrix)).T
    return z / z.norm(dim=1, keepdim=True).clamp_min(1e-300)


def dense_completion(matrix: Any, gram: torch.Tensor, ridge: float) -> tuple[Any, Any, float]:
    """Kernel regression with the kernel kappa(z_j, z_j') 1{i = i'} of all observed entries at once."""
    k, d = matrix.shape
    rows, columns = np.nonzero(~np.isnan(matrix))
    everywhere_rows, everywhere_columns = (index.ravel() for index in np.indices((k, d)))

    def kernel(i, j, i2, j2):
        return gram[j][:, j2] * torch.from_numpy((i[:, None] == i2[None, :]).astype(float))

    train = kernel(rows, columns, rows, columns)
    cross = kernel(everywhere_rows, everywhere_columns, rows, columns)
    y = torch.from_numpy(matrix[rows, columns])
    shifted = train + ridge * train.diagonal().mean() * torch.eye(len(y), dtype=torch.float64)
    weights = torch.linalg.solve(shifted, y)
    variance = gram.diagonal().repeat(k) - (cross * torch.linalg.solve(shifted, cross.T).T).sum(1)
    amplitude = float(y @ weights) / len(y)
    return (cross @ weights).view(k, d).numpy(), variance.clamp_min(0).view(k, d).numpy(), amplitude


@pytest.mark.parametrize("ridge", [1e-3, 0.3])
@pytest.mark.parametrize("prior", ["observed", "identity", "array"])
def test_equals_dense_regression_over_all_entries(prior, ridge):
    _, gaps = low_rank(12, 9)
    gaps[3] = gaps[4]  # rows with the same pattern, solved together
    array = np.random.default_rng(5).normal(size=(9, 4))
    features = {"observed": unit_columns(gaps), "identity": torch.eye(9).double(), "array": torch.from_numpy(array)}
    gram = ntk(features[prior].shape[1])(features[prior])
    expected, variance, amplitude = dense_completion(gaps, gram, ridge)
    imputer = NTKImputer(prior=array if prior == "array" else prior, ridge=ridge, offsets=False).fit(gaps)
    completed, deviation = imputer.transform(gaps, return_std=True)
    missing = np.isnan(gaps)
    np.testing.assert_allclose(completed[missing], expected[missing], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(completed[~missing], gaps[~missing])
    assert imputer.amplitude_ == pytest.approx(amplitude, rel=1e-10)
    np.testing.assert_allclose(deviation[missing], np.sqrt(amplitude * variance[missing]), rtol=1e-8, atol=1e-8)
    assert not deviation[~missing].any()


def test_a_kernel_of_ones_own_and_offsets():
    _, gaps = low_rank(15, 8)
    kernel = ntk(15, hidden_layers=2) + 0.5 * ntk(15, hidden_layers=0)
    imputer = NTKImputer(kernel, ridge=0.1).fit(gaps)
    offsets = imputer.offsets_.table(imputer._entries(gaps))
    left = gaps - offsets
    expected, _, _ = dense_completion(left, kernel(unit_columns(left)), 0.1)
    missing = np.isnan(gaps)
    np.testing.assert_allclose(imputer.transform(gaps)[missing], (expected + offsets)[missing], rtol=1e-10, atol=1e-10)


def test_a_hundred_problems_cost_one_gram_matrix():
    calls = []

    class Counted(ntkit.Kernel):
        def __call__(self, x1, x2=None):
            calls.append(x2)
            return ntk(6)(x1, x2)

        def diag(self, x):
            return ntk(6).diag(x)

    imputer = NTKImputer(Counted(), prior="identity", ridge=0.1, offsets=False)
    _, first = low_rank(5, 6)
    imputer.fit(first)
    gram = ntk(6)(torch.eye(6).double())
    for seed in range(100):
        _, gaps = low_rank(5, 6, seed=seed)
        completed = imputer.transform(gaps)
        if seed % 25 == 0:
            expected, _, _ = dense_completion(gaps, gram, 0.1)
            np.testing.assert_allclose(completed[np.isnan(gaps)], expected[np.isnan(gaps)], atol=1e-10)
    assert len(calls) == 1


def test_the_ridge_is_the_best_on_held_out_entries():
    _, gaps = low_rank(30, 12, noise=1.0)
    ridges = (1e-3, 0.1, 1.0, 10.0)
    imputer = NTKImputer(ridge=ridges, random_state=3).fit(gaps)
    rows, columns = np.nonzero(~np.isnan(gaps))
    order = np.random.RandomState(3).permutation(len(rows))
    out = order[: int(np.ceil(0.1 * len(rows)))]
    kept = gaps.copy()
    kept[rows[out], columns[out]] = np.nan
    for ridge in ridges:
        completed = NTKImputer(ridge=ridge).fit_transform(kept)
        error = np.sqrt(np.mean((completed - gaps)[rows[out], columns[out]] ** 2))
        assert imputer.errors_[ridge] == pytest.approx(error, rel=1e-9)
    assert imputer.ridge_ == min(imputer.errors_, key=imputer.errors_.__getitem__)


def test_it_beats_offsets_and_new_rows_are_completed():
    full, gaps = low_rank(120, 30, missing=0.3)
    missing = np.isnan(gaps)
    imputer = NTKImputer().fit(gaps[:90])
    completed = imputer.transform(gaps)
    offsets = imputer.offsets_.table(imputer._entries(gaps))
    for rows in (slice(0, 90), slice(90, 120)):  # seen and new
        where = missing[rows]
        errors = [np.mean((found[rows] - full[rows])[where] ** 2) for found in (completed, offsets)]
        assert errors[0] < 0.4 * errors[1]


def test_axis_columns_is_the_transposed_problem():
    _, gaps = low_rank(14, 10)
    across = NTKImputer(axis="columns", ridge=0.2).fit(gaps)
    along = NTKImputer(ridge=0.2).fit(gaps.T)
    for found, expected in zip(
        across.transform(gaps, return_std=True), along.transform(gaps.T, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, expected.T, atol=1e-12)
    assert across.n_features_in_ == 10
    with pytest.raises(InputError, match="must have the 14 rows of the fit. Got 3"):
        across.transform(gaps[:3])


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_sparse_is_dense_with_zeros_missing(axis):
    _, gaps = low_rank(20, 11)
    zeros = np.nan_to_num(gaps)
    expected = NTKImputer(axis=axis).fit(gaps)
    for matrix in (zeros, scipy.sparse.csr_array(zeros), scipy.sparse.coo_matrix(zeros)):
        found = NTKImputer(axis=axis, missing_values=0).fit(matrix)
        assert found.errors_ == pytest.approx(expected.errors_)
        np.testing.assert_allclose(found.transform(matrix), expected.transform(gaps), atol=1e-12)


def test_an_imputer_supplies_the_columns():
    _, gaps = low_rank(40, 10)
    backbone = KNNImputer(n_neighbors=3).fit(gaps)
    imputer = NTKImputer(prior=backbone, ridge=0.1).fit(gaps)
    offsets = imputer.offsets_.table(imputer._entries(gaps))
    gram = ntk(40)(unit_columns(backbone.transform(gaps) - offsets))
    np.testing.assert_allclose(imputer.gram_, gram, atol=1e-12)
    # A ridge chosen on entries held out must not see them through the imputer either: it is fitted again without them.
    seen = []

    class Watched(SimpleImputer):
        def fit(self, X, y=None):
            seen.append(int((~np.isnan(X)).sum()))
            return super().fit(X)

    NTKImputer(prior=Watched().fit(gaps)).fit(gaps)
    observed = int((~np.isnan(gaps)).sum())
    assert seen == [observed, observed - int(np.ceil(0.1 * observed))]


def test_rows_and_columns_without_entries():
    _, gaps = low_rank(12, 7)
    gaps[2], gaps[:, 3] = np.nan, np.nan
    imputer = NTKImputer(ridge=0.1).fit(gaps)
    completed, deviation = imputer.transform(gaps, return_std=True)
    offsets = imputer.offsets_.table(imputer._entries(gaps))
    assert np.isfinite(completed).all() and np.isfinite(deviation).all()
    np.testing.assert_allclose(completed[2], offsets[2])
    np.testing.assert_allclose(completed[:, 3], offsets[:, 3])
    # Features of one's own speak for a column without entries.
    alike = np.eye(7)
    alike[3] = alike[4]
    told = NTKImputer(prior=alike, ridge=0.01, offsets=False).fit_transform(gaps)
    where = ~np.isnan(gaps[:, 4])
    assert np.corrcoef(told[where, 3], gaps[where, 4])[0, 1] > 0.99


def test_singular_rows():
    gaps = np.array([[1.0, 1.0, 2.0], [np.nan, 3.0, 1.0], [2.0, 2.0, np.nan]])
    same = np.array([[1.0, 0.0], [1.0, 0.0], [0.5, 1.0]])
    with pytest.warns(JitterWarning, match="systems of 2 rows are numerically singular; in that of row 0"):
        completed = NTKImputer(prior=same, ridge=0.0, offsets=False).fit_transform(gaps)
    assert np.isfinite(completed).all() and completed[1, 0] == pytest.approx(3.0, rel=1e-4)

    class Indefinite(ntkit.Kernel):
        def __call__(self, x1, x2=None):
            return torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)

        def diag(self, x):
            return torch.ones(3)

    with pytest.raises(SingularKernelError, match="the system of row 0 cannot be solved"):
        NTKImputer(Indefinite(), ridge=0.0, offsets=False).fit(gaps)


def test_few_entries_take_a_fixed_ridge():
    _, gaps = low_rank(4, 3)
    with pytest.warns(NtkitWarning, match="too few to choose a ridge by: it is 0.1"):
        assert NTKImputer().fit(gaps).ridge_ == 0.1


GAPS = low_rank(10, 6)[1]
BAD: list[tuple[dict[str, Any], Any, type[Exception], str]] = [
    ({}, np.full((3, 2), np.nan), InputError, "at least one observed entry"),
    ({"missing_values": 0}, np.zeros((3, 2)), InputError, "at least one observed entry"),
    ({}, np.where(np.isnan(GAPS), np.inf, GAPS), ValueError, "infinity"),
    ({"prior": "mean"}, GAPS, InputError, "prior must be"),
    ({"prior": np.ones((5, 2))}, GAPS, InputError, r"shape \(6, q\)"),
    ({"prior": np.full((6, 2), np.nan)}, GAPS, InputError, "prior must be finite"),
    ({"prior": KNNImputer()}, GAPS, NotFittedError, "must be a fitted imputer"),
    ({"prior": SimpleImputer().fit(GAPS[:, :4])}, GAPS, ValueError, "features"),
    ({"prior": object()}, GAPS, InputTypeError, "prior must be"),
    ({"kernel": "rbf"}, GAPS, InputTypeError, "kernel must be an ntkit Kernel"),
    ({"ridge": "cv"}, GAPS, InputError, "ridge must be"),
    ({"ridge": -1.0}, GAPS, InputError, "ridge must be"),
    ({"ridge": []}, GAPS, InputError, "at least one candidate"),
    ({"axis": 0}, GAPS, InputError, "axis must be"),
    ({"hidden_layers": -1}, GAPS, InputError, "hidden_layers"),
    ({"missing_values": "no"}, GAPS, InputTypeError, "missing_values"),
    ({}, scipy.sparse.csr_array(np.nan_to_num(GAPS)), InputTypeError, "write missing_values=0"),
]


@pytest.mark.parametrize(("parameters", "matrix", "error", "message"), BAD, ids=lambda value: str(value)[:24])
def test_bad_input(parameters, matrix, error, message):
    with pytest.raises(error, match=message):
        NTKImputer(**parameters).fit(matrix)


def test_an_imputer_that_drops_columns():
    gaps = GAPS.copy()
    gaps[:, 1] = np.nan
    with pytest.raises(InputError, match="keep_empty_features=True"):
        NTKImputer(prior=KNNImputer().fit(gaps), ridge=0.1).fit(gaps)


@pytest.mark.filterwarnings("ignore:X has:ntkit.errors.NtkitWarning")
@parametrize_with_checks([NTKImputer(), NTKImputer(ridge=0.1, prior="identity", missing_values=0)])
def test_sklearn_contract(estimator, check):
    check(estimator)
