"""The adapters to scikit-learn and GPyTorch against direct formulas in float64."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import gpytorch
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
from torch import Tensor

import ntkit
from ntkit.errors import InputError, InputTypeError


class ArcCosine(ntkit.Kernel):
    """The first-order arc-cosine kernel with a bias, on inputs of any shape."""

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        a, b = x1.flatten(1), (x1 if x2 is None else x2).flatten(1)
        dots = a @ b.T + 1
        norms = torch.outer(self.diag(x1), self.diag(x1 if x2 is None else x2)).sqrt()
        # The margin keeps the derivative of acos finite where two inputs coincide.
        angle = torch.acos((dots / norms).clamp(-1 + 1e-12, 1 - 1e-12))
        return norms * (angle.sin() + (torch.pi - angle) * angle.cos()) / torch.pi

    def diag(self, x: Tensor) -> Tensor:
        return (x.flatten(1) ** 2).sum(1) + 1


def _rows(n: int, features: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


X, X_NEW = _rows(25), _rows(9, seed=1)
Y = torch.sin(X[:, 0]) + X[:, 1]
GRAM, CROSS = ArcCosine()(X), ArcCosine()(X_NEW, X)


def _mean(noise: float) -> np.ndarray[Any, Any]:
    gram = GRAM.numpy() + noise * np.eye(25)
    return np.asarray(CROSS.numpy() @ np.linalg.solve(gram, Y.numpy()))


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
    assert set(kernel.get_params()) == {"kernel", "input_shape", "dtype"}
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
    np.testing.assert_allclose(mean, _mean(0.1), rtol=1e-8)
    gram = GRAM.numpy() + 0.1 * np.eye(25)
    variance = ArcCosine().diag(X_NEW).numpy() - (CROSS.numpy() * np.linalg.solve(gram, CROSS.numpy().T).T).sum(1)
    np.testing.assert_allclose(deviation**2, variance, rtol=1e-6)


def test_sklearn_hyperparameters_of_other_kernels_are_still_optimised() -> None:
    kernel = 2.0 * ntkit.as_sklearn_kernel(ArcCosine()) + WhiteKernel(0.1)
    noisy = Y + 0.3 * _rows(25, seed=2)[:, 0]
    process = GaussianProcessRegressor(kernel).fit(X.numpy(), noisy.numpy())
    assert process.kernel_.theta.shape == (2,)
    assert process.log_marginal_likelihood_value_ >= process.log_marginal_likelihood(kernel.theta)


def test_sklearn_kernel_ridge_and_machines() -> None:
    kernel = ntkit.as_sklearn_kernel(ArcCosine())
    ridge = KernelRidge(alpha=0.1, kernel=kernel).fit(X.numpy(), Y.numpy())
    np.testing.assert_allclose(ridge.predict(X_NEW.numpy()), _mean(0.1), rtol=1e-8)
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


class Process(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x: Tensor, y: Tensor, kernel: gpytorch.kernels.Kernel) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("input_shape", [None, (2, 3)])
def test_gpytorch_posterior_is_kernel_regression(scaled: bool, input_shape: tuple[int, ...] | None) -> None:
    kernel = ntkit.as_gpytorch_kernel(ArcCosine(), input_shape)
    assert isinstance(kernel, gpytorch.kernels.Kernel)
    if scaled:
        kernel = gpytorch.kernels.ScaleKernel(kernel)
        kernel.outputscale = 1.0
    process = Process(X, Y, kernel).double()
    process.likelihood.noise = 0.1
    process.eval()
    with torch.no_grad():
        posterior = process(X_NEW)
    np.testing.assert_allclose(posterior.mean, _mean(0.1), rtol=1e-6)
    gram = GRAM.numpy() + 0.1 * np.eye(25)
    covariance = ArcCosine()(X_NEW).numpy() - CROSS.numpy() @ np.linalg.solve(gram, CROSS.numpy().T)
    np.testing.assert_allclose(posterior.covariance_matrix, covariance, atol=1e-5)


def test_gpytorch_marginal_likelihood_trains_what_surrounds_the_kernel() -> None:
    process = Process(X, Y, gpytorch.kernels.ScaleKernel(ntkit.as_gpytorch_kernel(ArcCosine()))).double()
    process.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(process.likelihood, process)
    optimizer = torch.optim.Adam(process.parameters(), lr=0.1)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = -objective(process(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gpytorch_batches_and_diagonals(dtype: torch.dtype) -> None:
    kernel = ntkit.as_gpytorch_kernel(ArcCosine()).to(dtype)
    assert kernel.dtype == dtype
    a, b = X.to(dtype).reshape(5, 5, 6), X_NEW.to(dtype)
    expected = torch.stack([ArcCosine()(part, b) for part in a])
    torch.testing.assert_close(kernel(a, b).to_dense(), expected)
    torch.testing.assert_close(kernel(a).to_dense(), torch.stack([ArcCosine()(part) for part in a]))
    torch.testing.assert_close(kernel(a).diagonal(dim1=-1, dim2=-2), torch.stack([ArcCosine().diag(p) for p in a]))
    torch.testing.assert_close(kernel(a[0], b[:5], diag=True), ArcCosine()(a[0], b[:5]).diagonal())
    torch.testing.assert_close(kernel(a[0], b)[1:3].to_dense(), ArcCosine()(a[0, 1:3], b))


def test_gpytorch_gradients_reach_the_inputs() -> None:
    x = X_NEW.clone().requires_grad_()
    kernel = ntkit.as_gpytorch_kernel(ArcCosine()).double()
    (gradient,) = torch.autograd.grad(kernel(x, X).to_dense().sum(), x)
    (expected,) = torch.autograd.grad(ArcCosine()(x, X).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_gpytorch_copies_and_pickles() -> None:
    kernel = ntkit.as_gpytorch_kernel(ArcCosine()).double()
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(other(X).to_dense(), GRAM)
    assert not kernel.state_dict()


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch:DeprecationWarning")
def test_gpytorch_bad_input_is_explained() -> None:
    with pytest.raises(InputTypeError, match="Got int"):
        ntkit.as_gpytorch_kernel(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs rows of 4 features"):
        ntkit.as_gpytorch_kernel(ArcCosine(), (2, 2))(X).to_dense()
    with pytest.raises(InputError, match="one kernel a feature"):
        ntkit.as_gpytorch_kernel(ArcCosine())(X, last_dim_is_batch=True).to_dense()


def test_gpytorch_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "gpytorch"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "ntkit.kernels._gpytorch_kernel", raising=False)
    with pytest.raises(ImportError, match=r"pip install ntkit\[gp\]"):
        ntkit.as_gpytorch_kernel(ArcCosine())
