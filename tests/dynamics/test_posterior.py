"""Ensembles of infinitely wide networks: the formulas as written, and real networks trained."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import multivariate_normal
from tests.cases import mlp, normal
from torch import Tensor, nn

import ntkit
from ntkit._src.solvers import decompose
from ntkit.errors import InputError, InputTypeError, JitterWarning, MemoryLimitError

INF = math.inf
NET = mlp(2, 8, 8, 1)
LIMIT = ntkit.infinite_width(NET, w_std=1.4, b_std=0.3)
X, Y, NEW = normal(10, 2), normal(10, 3, seed=1), normal(6, 2, seed=2)


def oracle(mode: str, t: float, ridge: float, noisy: bool) -> tuple[Tensor, Tensor]:
    """Eqs. (152), (153), (156) as they are written, with the matrix exponential and inverses."""
    prior = LIMIT.nngp
    tangent = LIMIT.ntk if mode == "ntk" else prior
    theta, eye = tangent(X), torch.eye(10, dtype=torch.float64)
    rho = ridge * float(theta.trace()) / 10
    inverse = torch.linalg.inv(theta + rho * eye)
    learned = eye if math.isinf(t) else eye - torch.linalg.matrix_exp(-(theta + rho * eye) * t)
    left = tangent(NEW, X) @ inverse @ learned
    mixed = left @ prior(X, NEW)
    sigma = prior(NEW) + left @ (prior(X) + (rho if noisy else 0) * eye) @ left.T - mixed - mixed.T
    return left @ Y, sigma


@pytest.mark.parametrize("mode", ["ntk", "last_layer"])
@pytest.mark.parametrize("t", [0.0, 0.5, 5.0, INF])
@pytest.mark.parametrize(("ridge", "noisy"), [(0.0, False), (0.1, False), (0.1, True)])
def test_equals_the_formulas(mode: Any, t: float, ridge: float, noisy: bool) -> None:
    mean, sigma = oracle(mode, t, ridge, noisy)
    found = ntkit.posterior(LIMIT, X, Y, NEW, mode, t, ridge, noisy_targets=noisy)
    assert found.covariance is not None
    torch.testing.assert_close(found.mean, mean, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.covariance, sigma, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.variance, sigma.diagonal(), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.covariance, found.covariance.T, rtol=0, atol=0)
    only = ntkit.posterior(LIMIT, X, Y[:, 0], NEW, mode, t, ridge, "diagonal", noisy)
    assert only.covariance is None
    torch.testing.assert_close(only.mean, mean[:, 0], rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(only.variance, found.variance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("ridge", [0.0, 0.2])
def test_bayesian_posterior_is_conditioning(ridge: float) -> None:
    joint = LIMIT.nngp(torch.cat([X, NEW]))
    noise = ridge * float(joint[:10, :10].trace()) / 10
    observed = joint[:10, :10] + noise * torch.eye(10, dtype=torch.float64)
    gain = joint[10:, :10] @ torch.linalg.inv(observed)
    found = ntkit.posterior(LIMIT, X, Y, NEW, "nngp", ridge=ridge)
    assert found.covariance is not None and found.log_marginal_likelihood is not None
    torch.testing.assert_close(found.mean, gain @ Y, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.covariance, joint[10:, 10:] - gain @ joint[:10, 10:], rtol=1e-9, atol=1e-10)
    assert found.noise == pytest.approx(noise)
    density = multivariate_normal([0.0] * 10, observed.numpy()).logpdf(Y.T.numpy()).sum()
    assert found.log_marginal_likelihood == pytest.approx(density, rel=1e-10)
    ensemble = ntkit.posterior(LIMIT.nngp, X, Y, NEW, "last_layer", ridge=ridge, noisy_targets=True)
    torch.testing.assert_close(ensemble.covariance, found.covariance, rtol=1e-9, atol=1e-10)
    late = ntkit.posterior(LIMIT, X, Y, NEW, "last_layer", 1e9, ridge, noisy_targets=True)
    torch.testing.assert_close(late.covariance, found.covariance, rtol=1e-7, atol=1e-8)
    assert late.log_marginal_likelihood == pytest.approx(density, rel=1e-10)
    assert ntkit.posterior(LIMIT, X, Y, NEW).log_marginal_likelihood is None


@pytest.mark.parametrize("mode", ["ntk", "nngp", "last_layer"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_positive_semidefinite_also_where_points_repeat(mode: Any, dtype: torch.dtype) -> None:
    x, y = torch.cat([X, X[:3]]).to(dtype), torch.cat([Y, Y[:3]]).to(dtype)
    new = torch.cat([NEW, NEW[:2], X]).to(dtype)
    with pytest.warns(JitterWarning):
        found = ntkit.posterior(LIMIT, x, y, new, mode)
    assert found.covariance is not None
    assert "jitter of" in found.status
    size = float(LIMIT.nngp.diag(new).max())
    accuracy = 1e-4 if dtype == torch.float32 else 1e-9
    assert float(torch.linalg.eigvalsh(found.covariance)[0]) > -accuracy * size
    assert (found.variance >= 0).all()
    assert (found.variance[8:] < 10 * accuracy * size).all()  # the training points are known
    torch.testing.assert_close(found.mean[8:], Y.to(dtype), rtol=0, atol=0.05 if dtype == torch.float32 else 1e-7)
    drawn = found.sample(1, torch.Generator().manual_seed(0))
    assert len(drawn) == 1 and torch.isfinite(drawn).all()


def test_samples_have_the_moments() -> None:
    found = ntkit.posterior(LIMIT, X, Y[:, :2], NEW, t=1.0)
    assert found.covariance is not None
    samples = found.sample(20_000, torch.Generator().manual_seed(0))
    assert samples.shape == (20_000, 6, 2)
    scale = found.variance.sqrt()
    assert ((samples.mean(0) - found.mean).abs() < 5 * scale[:, None] / 20_000**0.5).all()
    for k in range(2):
        error = samples[:, :, k].T.cov() - found.covariance
        assert (error.abs() < 5 * scale[:, None] * scale * (2 / 20_000) ** 0.5).all()
    again = found.sample(20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(samples, again, rtol=0, atol=0)


def test_diagonal_where_the_full_covariance_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    free = [2 * 8 * 6 * (3 * 6 + 4 * 10)]
    monkeypatch.setattr("ntkit._src.dynamics._posterior.available_bytes", lambda device: free[0])
    assert ntkit.posterior(LIMIT, X, Y, NEW).covariance is not None
    free[0] -= 1
    small = ntkit.posterior(LIMIT, X, Y, NEW)
    assert small.covariance is None
    with pytest.raises(InputError, match='covariance="full"'):
        small.sample(1)


@pytest.mark.parametrize("mode", ["ntk", "last_layer"])
@pytest.mark.parametrize("kind", ["full", "diagonal"])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_many_times_are_each_time_with_one_decomposition(
    mode: Any, kind: Any, ridge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [0.0, 0.3, 5.0, INF]
    each = [ntkit.posterior(LIMIT, X, Y, NEW, mode, t, ridge, kind) for t in times]
    calls = []

    def counted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        return decompose(*arguments, **options)

    monkeypatch.setattr("ntkit._src.dynamics._posterior.decompose", counted)
    many = ntkit.posterior(LIMIT, X, Y, NEW, mode, times, ridge, kind)
    assert len(calls) == 1
    assert many.times is not None and many.times.tolist() == times and each[0].times is None
    for index, one in enumerate(each):
        torch.testing.assert_close(many.mean[index], one.mean, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(many.variance[index], one.variance, rtol=1e-7, atol=1e-9)
        if kind == "full":
            assert many.covariance is not None
            torch.testing.assert_close(many.covariance[index], one.covariance, rtol=1e-7, atol=1e-9)
    if kind == "full":
        drawn = many.sample(7, torch.Generator().manual_seed(0))
        assert drawn.shape == (7, *many.mean.shape)


@pytest.mark.parametrize("outputs", [slice(None), 0])
@pytest.mark.parametrize("t", [1.0, [0.5, 2.0]])
def test_band_of_the_ensemble(outputs: Any, t: Any) -> None:
    found = ntkit.posterior(LIMIT, X, Y[:, outputs], NEW, t=t, ridge=0.1)
    low, high = found.band()
    std = found.variance.sqrt() if isinstance(outputs, int) else found.variance.sqrt()[..., None].expand(low.shape)
    torch.testing.assert_close(high - low, 4 * std)
    torch.testing.assert_close((high + low) / 2, found.mean)
    noisy = found.band(1.0, noisy=True)
    torch.testing.assert_close(((noisy[1] - noisy[0]) / 2) ** 2 - found.noise, std**2)


def _ensemble(x: Tensor, y: Tensor, new: Tensor, rate: float, steps: int, trained: str) -> Tensor:
    """Outputs at ``new`` of 200 networks of one hidden layer of 512, trained by gradient descent, shape (200, m)."""
    members, width, w, b = 200, 512, 1.4, 0.3
    generator = torch.Generator().manual_seed(0)
    shapes = [(members, x.shape[1], width), (members, 1, width), (members, width, 1), (members, 1, 1)]
    weights = [torch.randn(shape, generator=generator, dtype=torch.float32) for shape in shapes]
    free = weights if trained == "ntk" else weights[2:]
    for weight in free:
        weight.requires_grad_()

    def outputs(points: Tensor) -> Tensor:
        hidden = torch.relu(w / x.shape[1] ** 0.5 * points.float() @ weights[0] + b * weights[1])
        return (w / width**0.5 * hidden @ weights[2] + b * weights[3])[:, :, 0]

    for _ in range(steps):
        loss = ((outputs(x) - y.float()) ** 2).sum() / 2
        for weight, gradient in zip(free, torch.autograd.grad(loss, free), strict=True):
            weight.data -= rate * gradient
    return outputs(new).detach().double()


@pytest.mark.parametrize("mode", ["ntk", "last_layer"])
@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
def test_matches_two_hundred_trained_networks(mode: Any, late: bool) -> None:
    net = mlp(2, 8, 1)
    limit = ntkit.infinite_width(net, w_std=1.4, b_std=0.3)
    # Points far apart: what 512 neurons miss of the limit grows as the smallest eigenvalue falls.
    x = 1.5 * torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    y, new = torch.tensor([1.0, -0.5, -1.0, 0.5], dtype=torch.float64), 1.5 * normal(5, 2, seed=9)
    largest = ntkit.max_learning_rate(limit.ntk(x) if mode == "ntk" else limit.nngp(x))
    # Early: small steps, which follow the flow. Late: large ones, to the end, which no longer depends on them.
    rate, steps = (0.5 * largest, 80) if late else (0.01 * largest, 50)
    t = INF if late else rate * steps
    outputs = _ensemble(x, y, new, rate, steps, mode)
    found = ntkit.posterior(limit, x, y, new, mode, t)
    assert found.covariance is not None
    scale = found.variance.sqrt()
    deviation = (outputs.mean(0) - found.mean) / scale * 200**0.5
    assert float(deviation.abs().max()) < 3.5
    sigma = found.covariance
    error = ((scale[:, None] * scale) ** 2 + sigma**2).sqrt() / 200**0.5
    assert float(((outputs.T.cov() - sigma) / error).abs().max()) < 3.5
    # The test can tell: the same networks do not look like the prior.
    prior = limit.nngp.diag(new)
    assert float(((outputs.var(0) - prior) / (prior * (2 / 200) ** 0.5)).abs().max()) > 5


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, "bayes"), InputError, "last_layer"),  # type: ignore[arg-type]
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, "nngp", 1.0), InputError, "has no time"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, "nngp", [1.0, INF]), InputError, "has no time"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, t=[]), InputError, "at least one value"),
        (lambda: ntkit.posterior(LIMIT, X, Y, None), InputTypeError, "x_test must be a torch.Tensor. Got None"),  # type: ignore[arg-type]
        (lambda: ntkit.posterior(LIMIT, X.to("meta"), Y, NEW), InputTypeError, "x_train must hold values"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW.to_sparse()), InputTypeError, "to_dense"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, t=-1.0), InputError, "negative"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, ridge=-1.0), InputError, "not negative"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW, covariance="none"), InputError, "diagonal"),  # type: ignore[arg-type]
        (lambda: ntkit.posterior(LIMIT.ntk, X, Y, NEW), InputTypeError, "both kernels"),
        (lambda: ntkit.posterior(NET, X, Y, NEW), InputTypeError, "infinite_width"),  # type: ignore[arg-type]
        (lambda: ntkit.posterior(LIMIT, X, Y[:3], NEW), InputError, "n = 10"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW.float()), InputTypeError, "dtype"),
        (lambda: ntkit.posterior(LIMIT, X, Y, NEW).sample(0), InputError, "at least 1"),
    ],
)
def test_bad_input_is_explained(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(("mode", "matrices"), [("ntk", 3), ("nngp", 2), ("last_layer", 2)])
def test_memory_is_asked_for_each_kernel_and_the_factor(
    mode: Any, matrices: int, free_memory: Callable[[int], None]
) -> None:
    free_memory(8 * 10 * 10 * matrices - 1)
    with pytest.raises(MemoryLimitError, match=r"n = 10 .*largest n that fits is 9"):
        ntkit.posterior(LIMIT, X, Y, NEW, mode=mode, ridge=0.1)
    free_memory(8 * 10 * 10 * matrices)
    ntkit.posterior(LIMIT, X, Y, NEW, mode=mode, ridge=0.1)


def test_jitter_is_reported_at_the_line_of_the_caller() -> None:
    with pytest.warns(JitterWarning) as caught:
        ntkit.posterior(LIMIT, torch.cat([X, X[:3]]), torch.cat([Y, Y[:3]]), NEW)
    assert {warning.filename for warning in caught} == {__file__}


def test_linearised_laplace_is_the_posterior_of_the_empirical_tangent_kernel() -> None:
    """The docstring's recipe against the Gaussian posterior of the weights themselves: Jacobian, prior, noise."""
    torch.manual_seed(3)
    net = mlp(2, 5, 1, activation=nn.Tanh).double()
    tau, sigma, y = 0.7, 0.2, Y[:, 0]

    def jacobian(points: Tensor) -> Tensor:
        rows = [torch.autograd.grad(net(point[None]).squeeze(), list(net.parameters())) for point in points]
        return torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])

    trained, new = jacobian(X), jacobian(NEW)
    eye = torch.eye(trained.shape[1], dtype=torch.float64)
    weights = torch.linalg.inv(trained.T @ trained / sigma**2 + eye / tau**2)
    with torch.no_grad():
        residual, start = y - net(X)[:, 0], net(NEW)[:, 0]
    covariance = new @ weights @ new.T
    mean = start + new @ weights @ trained.T @ residual / sigma**2

    kernel = tau**2 * ntkit.empirical(net).ntk
    ridge = sigma**2 / float(kernel.diag(X).mean())
    found = ntkit.posterior(kernel, X, residual, NEW, mode="nngp", ridge=ridge)
    torch.testing.assert_close(found.covariance, covariance, rtol=0, atol=1e-11)
    torch.testing.assert_close(found.variance, covariance.diagonal(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(start + found.mean, mean, rtol=1e-10, atol=1e-10)
    assert found.noise == pytest.approx(sigma**2)
    # the ensemble of networks with these features is another question, with another answer
    ensemble = ntkit.posterior(ntkit.empirical(net), X, residual, NEW, ridge=ridge)
    assert float((ensemble.variance - found.variance).abs().max()) > 0.01


@pytest.mark.parametrize("mode", ["ntk", "nngp", "last_layer"])
@pytest.mark.parametrize("flat", [False, True])
def test_a_row_for_each_output_is_refused(mode: Any, flat: bool) -> None:
    full = ntkit.empirical(mlp(2, 4, 3).double(), output="full")
    with pytest.raises(InputError, match=r'shape \(10, 10\).*Got shape \(30, 30\).*3 outputs.*output="trace"'):
        ntkit.posterior(full, X, Y.reshape(-1) if flat else Y, NEW, mode, ridge=0.1)
