"""The adapter to scikit-learn against direct formulas in float64."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel as SklearnBase
from sklearn.gaussian_process.kernels import WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC
from tests.cases import mlp
from tests.kernels.problems import (
    CROSS,
    GRAM,
    LEARNT_X,
    LEARNT_Y,
    X_NEW,
    ArcCosine,
    X,
    Y,
    best_gains,
    learnt_limit,
    mean_at_new,
    rows,
)
from torch import Tensor, nn

import ntkit
from ntkit.errors import InputError, InputTypeError


def test_sklearn_values_and_contract() -> None:
    kernel = ntkit.as_sklearn_kernel(ArcCosine())
    assert isinstance(kernel, SklearnBase)
    np.testing.assert_allclose(kernel(X.numpy()), GRAM)
    np.testing.assert_allclose(kernel(X_NEW.numpy(), X.numpy()), CROSS)
    np.testing.assert_allclose(kernel.diag(X.numpy()), ArcCosine().diag(X))
    gram, gradient = kernel(X.numpy(), eval_gradient=True)
    assert gram.shape == (25, 25)
    assert gradient.shape == (25, 25, 0)
    assert kernel.theta.shape == (0,)
    assert kernel.bounds.size == 0
    assert kernel.n_dims == 0
    assert not kernel.is_stationary()
    assert set(kernel.get_params()) >= {"kernel", "input_shape", "dtype", "w_std", "b_std"}
    assert kernel.w_std is None and kernel.b_std is None
    assert "ArcCosine" in repr(kernel)
    for other in (clone(kernel), kernel.clone_with_theta(kernel.theta), pickle.loads(pickle.dumps(kernel))):
        np.testing.assert_array_equal(other(X.numpy()), kernel(X.numpy()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sklearn_dtype_and_shape(dtype: str) -> None:
    seen = []

    class Recording(ArcCosine):
        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            seen.append((x1.dtype, tuple(x1.shape)))
            return super().__call__(x1, x2)

    values = ntkit.as_sklearn_kernel(Recording(), input_shape=(2, 3), dtype=dtype)(X.numpy())
    assert seen == [(getattr(torch, dtype), (25, 2, 3))]
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, GRAM, rtol=1e-3)


def test_sklearn_gaussian_process() -> None:
    kernel = ntkit.as_sklearn_kernel(ArcCosine())
    process = GaussianProcessRegressor(kernel, alpha=0.1).fit(X.numpy(), Y.numpy())
    mean, deviation = process.predict(X_NEW.numpy(), return_std=True)
    np.testing.assert_allclose(mean, mean_at_new(0.1), rtol=1e-8)
    gram = GRAM.numpy() + 0.1 * np.eye(25)
    variance = ArcCosine().diag(X_NEW).numpy() - (CROSS.numpy() * np.linalg.solve(gram, CROSS.numpy().T).T).sum(1)
    np.testing.assert_allclose(deviation**2, variance, rtol=1e-6)


def test_sklearn_hyperparameters_of_other_kernels_are_still_optimised() -> None:
    kernel = 2.0 * ntkit.as_sklearn_kernel(ArcCosine()) + WhiteKernel(0.1)
    noisy = Y + 0.3 * rows(25, seed=2)[:, 0]
    process = GaussianProcessRegressor(kernel).fit(X.numpy(), noisy.numpy())
    assert process.kernel_.theta.shape == (2,)
    assert process.log_marginal_likelihood_value_ >= process.log_marginal_likelihood(kernel.theta)


def test_sklearn_kernel_ridge_and_machines() -> None:
    kernel = ntkit.as_sklearn_kernel(ArcCosine())
    ridge = KernelRidge(alpha=0.1, kernel=kernel).fit(X.numpy(), Y.numpy())
    np.testing.assert_allclose(ridge.predict(X_NEW.numpy()), mean_at_new(0.1), rtol=1e-8)
    features, labels = load_iris(return_X_y=True)
    assert SVC(kernel=kernel).fit(features[::2], labels[::2]).score(features[1::2], labels[1::2]) > 0.9
    process = GaussianProcessClassifier(kernel).fit(features[::3], labels[::3])
    assert process.score(features[1::3], labels[1::3]) > 0.9


def test_sklearn_bad_input_is_explained() -> None:
    with pytest.raises(InputTypeError, match=r"infinite_width\(module\).ntk. Got str"):
        ntkit.as_sklearn_kernel("ntk")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'float64'. Got 'half'"):
        ntkit.as_sklearn_kernel(ArcCosine(), dtype="half")
    with pytest.raises(InputError, match="needs rows of 12 features. Got 6"):
        ntkit.as_sklearn_kernel(ArcCosine(), input_shape=(3, 4))(X.numpy())
    with pytest.raises(InputError, match=r"\(n, features\)"):
        ntkit.as_sklearn_kernel(ArcCosine())(X.numpy()[None])
    with pytest.raises(InputError, match="gradient"):
        ntkit.as_sklearn_kernel(ArcCosine())(X.numpy(), X.numpy(), eval_gradient=True)


@pytest.mark.parametrize("which", ["ntk", "nngp"])
@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh()])
def test_gains_are_hyperparameters_with_gradients(which: str, activation: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(6, 8), activation, nn.Linear(8, 1))
    kernel = ntkit.as_sklearn_kernel(getattr(ntkit.infinite_width(net, w_std=1.3, b_std=0.4), which))
    np.testing.assert_allclose(np.exp(kernel.theta), [0.4, 1.3])  # scikit-learn sorts by name
    np.testing.assert_allclose(np.exp(kernel.bounds), [[1e-4, 1e2], [1e-2, 1e2]])
    x = X.numpy()[:8]
    gram, gradient = kernel(x, eval_gradient=True)
    np.testing.assert_allclose(gram, kernel(x), rtol=1e-12)
    for index in range(2):
        step = 1e-5 * np.eye(2)[index]
        around = [kernel.clone_with_theta(kernel.theta + sign * step)(x) for sign in (1, -1)]
        np.testing.assert_allclose(gradient[:, :, index], (around[0] - around[1]) / 2e-5, rtol=1e-6, atol=1e-7)
    moved = kernel.clone_with_theta(np.log([0.7, 1.1]))
    expected = getattr(ntkit.infinite_width(net, w_std=1.1, b_std=0.7), which)(X[:8])
    np.testing.assert_allclose(moved(x), expected, rtol=1e-12)
    np.testing.assert_allclose(moved.diag(x), expected.diagonal(), rtol=1e-12)


def test_fixed_gains_and_gains_of_zero_stay() -> None:
    net = mlp(6, 8, 1)
    fixed = ntkit.as_sklearn_kernel(ntkit.infinite_width(net, b_std=0.4).ntk, w_std_bounds="fixed")
    assert fixed.n_dims == 1 and fixed(X.numpy(), eval_gradient=True)[1].shape == (25, 25, 1)
    unbiased = ntkit.as_sklearn_kernel(ntkit.infinite_width(net).ntk)
    assert [one.name for one in unbiased.hyperparameters if not one.fixed] == ["w_std"]
    torch_gains = ntkit.as_sklearn_kernel(ntkit.infinite_width(net, init="torch").ntk)
    assert torch_gains.n_dims == 0
    for kernel in (fixed, unbiased, torch_gains):
        np.testing.assert_array_equal(clone(kernel)(X.numpy()), kernel(X.numpy()))


def test_gaussian_process_reaches_the_gains_of_evidence() -> None:
    best = best_gains()
    kernel = ntkit.as_sklearn_kernel(learnt_limit().nngp) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, alpha=0.0).fit(LEARNT_X.numpy(), LEARNT_Y.numpy())
    found = process.kernel_.k1
    assert found.w_std == pytest.approx(best.w_std, rel=1e-3)
    assert found.b_std == pytest.approx(best.b_std, rel=1e-3)
    assert process.log_marginal_likelihood_value_ == pytest.approx(best.log_marginal_likelihood, abs=1e-5)


def test_gains_of_a_module_in_the_ntk_parametrisation_are_no_hyperparameters():
    net = ntkit.parametrize_ntk(mlp(3, 8, 1), w_std=1.3, b_std=0.2)
    limit = ntkit.infinite_width(net)
    kernel, x = ntkit.as_sklearn_kernel(limit.nngp), np.random.default_rng(0).standard_normal((4, 3))
    assert (kernel.w_std, kernel.b_std, len(kernel.theta)) == (None, None, 0)
    values, slopes = kernel(x, eval_gradient=True)
    np.testing.assert_allclose(values, limit.nngp(torch.from_numpy(x)).numpy())
    assert slopes.shape == (4, 4, 0)
