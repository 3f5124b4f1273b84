"""The adapter to GPyTorch against direct formulas in float64."""

from __future__ import annotations

import copy
import pickle
import sys

import gpytorch
import numpy as np
import pytest
import torch
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
)
from torch import Tensor, nn

import ntkit
from ntkit.errors import InputError, InputTypeError


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
def test_posterior_is_kernel_regression(scaled: bool, input_shape: tuple[int, ...] | None) -> None:
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
    np.testing.assert_allclose(posterior.mean, mean_at_new(0.1), rtol=1e-6)
    gram = GRAM.numpy() + 0.1 * np.eye(25)
    covariance = ArcCosine()(X_NEW).numpy() - CROSS.numpy() @ np.linalg.solve(gram, CROSS.numpy().T)
    np.testing.assert_allclose(posterior.covariance_matrix, covariance, atol=1e-5)


def test_marginal_likelihood_trains_what_surrounds_the_kernel() -> None:
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
def test_batches_and_diagonals(dtype: torch.dtype) -> None:
    kernel = ntkit.as_gpytorch_kernel(ArcCosine()).to(dtype)
    assert kernel.dtype == dtype
    a, b = X.to(dtype).reshape(5, 5, 6), X_NEW.to(dtype)
    expected = torch.stack([ArcCosine()(part, b) for part in a])
    torch.testing.assert_close(kernel(a, b).to_dense(), expected)
    torch.testing.assert_close(kernel(a).to_dense(), torch.stack([ArcCosine()(part) for part in a]))
    torch.testing.assert_close(kernel(a).diagonal(dim1=-1, dim2=-2), torch.stack([ArcCosine().diag(p) for p in a]))
    torch.testing.assert_close(kernel(a[0], b[:5], diag=True), ArcCosine()(a[0], b[:5]).diagonal())
    torch.testing.assert_close(kernel(a[0], b)[1:3].to_dense(), ArcCosine()(a[0, 1:3], b))


def test_gradients_reach_the_inputs() -> None:
    x = X_NEW.clone().requires_grad_()
    kernel = ntkit.as_gpytorch_kernel(ArcCosine()).double()
    (gradient,) = torch.autograd.grad(kernel(x, X).to_dense().sum(), x)
    (expected,) = torch.autograd.grad(ArcCosine()(x, X).sum(), x)
    torch.testing.assert_close(gradient, expected)


def test_copies_and_pickles() -> None:
    kernel = ntkit.as_gpytorch_kernel(ArcCosine()).double()
    for other in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        torch.testing.assert_close(other(X).to_dense(), GRAM)
    assert not kernel.state_dict()


@pytest.mark.filterwarnings("ignore:The last_dim_is_batch:DeprecationWarning")
def test_bad_input_is_explained() -> None:
    with pytest.raises(InputTypeError, match="Got int"):
        ntkit.as_gpytorch_kernel(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs rows of 4 features"):
        ntkit.as_gpytorch_kernel(ArcCosine(), (2, 2))(X).to_dense()
    with pytest.raises(InputError, match="one kernel per feature"):
        ntkit.as_gpytorch_kernel(ArcCosine())(X, last_dim_is_batch=True).to_dense()


def test_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "gpytorch"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "ntkit._src.kernels._gpytorch_kernel", raising=False)
    with pytest.raises(ImportError, match=r"pip install ntkit\[gp\]"):
        ntkit.as_gpytorch_kernel(ArcCosine())


def objective_of(process: Process) -> Tensor:
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(process.likelihood, process)
    return -objective(process(*process.train_inputs), process.train_targets)


def test_gains_are_parameters_that_training_moves() -> None:
    kernel = ntkit.as_gpytorch_kernel(learnt_limit().ntk)
    assert kernel.w_std.item() == pytest.approx(1.2, rel=1e-6) and kernel.b_std.item() == pytest.approx(0.4, rel=1e-6)
    process = Process(LEARNT_X, LEARNT_Y, kernel).double()
    optimizer = torch.optim.Adam(process.parameters(), lr=0.05)
    before = objective_of(process).item()
    for _ in range(30):
        optimizer.zero_grad()
        objective_of(process).backward()
        optimizer.step()
    assert objective_of(process).item() < before - 0.05
    assert abs(kernel.w_std.item() - 1.2) > 0.05 and abs(kernel.b_std.item() - 0.4) > 0.05
    now = ntkit.infinite_width(kernel.kernel.limit.module, kernel.w_std.item(), kernel.b_std.item()).ntk
    torch.testing.assert_close(kernel(LEARNT_X).to_dense().detach(), now(LEARNT_X), rtol=1e-9, atol=1e-12)


def test_gains_given_as_tensors_are_where_training_starts() -> None:
    net = mlp(6, 8, 1)
    given = ntkit.infinite_width(net, w_std=nn.Parameter(torch.tensor(1.1)), b_std=torch.tensor(0.3))
    kernel = ntkit.as_gpytorch_kernel(given.nngp)
    assert kernel.w_std.item() == pytest.approx(1.1, rel=1e-6) and kernel.b_std.item() == pytest.approx(0.3, rel=1e-6)


def test_training_reaches_the_gains_of_evidence() -> None:
    best = best_gains()
    kernel = ntkit.as_gpytorch_kernel(learnt_limit().nngp)
    process = Process(LEARNT_X, LEARNT_Y, kernel).double()
    optimizer = torch.optim.LBFGS(
        process.parameters(), max_iter=200, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimizer.zero_grad()
        loss = objective_of(process)
        loss.backward()
        return float(loss.detach())

    with gpytorch.settings.fast_computations(log_prob=False):
        optimizer.step(closure)
    assert kernel.w_std.item() == pytest.approx(best.w_std, rel=1e-3)
    assert kernel.b_std.item() == pytest.approx(best.b_std, rel=1e-3)


def test_priors_and_constraints_in_the_manner_of_gpytorch() -> None:
    prior = gpytorch.priors.GammaPrior(2.0, 1.0)
    kernel = ntkit.as_gpytorch_kernel(
        learnt_limit().nngp, w_std_prior=prior, b_std_constraint=gpytorch.constraints.Interval(0.1, 2.0)
    ).double()
    assert [name for name, *_ in kernel.named_priors()] == ["w_std_prior"]
    plain = ntkit.as_gpytorch_kernel(learnt_limit().nngp).double()
    difference = objective_of(Process(LEARNT_X, LEARNT_Y, plain).double()) - objective_of(
        Process(LEARNT_X, LEARNT_Y, kernel).double()
    )
    expected = prior.log_prob(torch.tensor(1.2, dtype=torch.float64)) / len(LEARNT_X)
    torch.testing.assert_close(difference, expected, rtol=1e-5, atol=1e-7)
    kernel.b_std = 1.5
    assert kernel.b_std.item() == pytest.approx(1.5, rel=1e-6) and kernel.raw_b_std.item() != 1.5
    kernel.w_std = torch.tensor(0.9)
    torch.testing.assert_close(
        kernel(X_NEW[:, :2]).to_dense(), learnt_limit(0.9, 1.5).nngp(X_NEW[:, :2]), rtol=1e-6, atol=0
    )
    restored = ntkit.as_gpytorch_kernel(
        learnt_limit().nngp, b_std_constraint=gpytorch.constraints.Interval(0.1, 2.0)
    ).double()
    restored.load_state_dict(kernel.state_dict(), strict=False)
    assert restored.w_std.item() == pytest.approx(0.9, rel=1e-6)
    copied = pickle.loads(pickle.dumps(plain))
    torch.testing.assert_close(copied(LEARNT_X).to_dense(), plain(LEARNT_X).to_dense())


def test_only_gains_that_exist_are_parameters() -> None:
    net = mlp(6, 8, 1)
    unbiased = ntkit.as_gpytorch_kernel(ntkit.infinite_width(net).ntk)
    assert [name for name, _ in unbiased.named_parameters()] == ["raw_w_std"]
    assert float(unbiased.b_std) == 0.0
    assert not list(ntkit.as_gpytorch_kernel(ntkit.infinite_width(net, init="torch").ntk).parameters())
    with pytest.raises(InputError, match="b_std is not a parameter"):
        unbiased.b_std = 0.1
    with pytest.raises(InputError, match="w_std is not a parameter"):
        ntkit.as_gpytorch_kernel(ArcCosine(), w_std_constraint=gpytorch.constraints.Positive())


def test_gains_of_a_module_in_the_ntk_parametrisation_are_no_parameters():
    net = ntkit.parametrize_ntk(mlp(3, 8, 1), w_std=1.3, b_std=0.2)
    limit = ntkit.infinite_width(net)
    kernel, x = ntkit.as_gpytorch_kernel(limit.nngp), torch.randn(4, 3, dtype=torch.float64)
    assert list(kernel.named_parameters()) == []
    torch.testing.assert_close(kernel(x).to_dense(), limit.nngp(x))
