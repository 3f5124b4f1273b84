"""The marginal likelihood against SciPy and finite differences, and the search for its maximum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from tests.cases import mlp, normal
from torch import Tensor, nn

import ntkit
from ntkit._src.dynamics._evidence import _guarded
from ntkit.errors import InputError, InputTypeError, QuadratureError, SingularKernelError


def _net(depth: int = 1, bias: bool = True) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.LazyLinear(8, bias=bias), nn.ReLU())]
    net = nn.Sequential(*layers, nn.LazyLinear(1, bias=bias))
    net(torch.zeros(1, 3))
    return net


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(12,), (12, 3)])
def test_density_is_that_of_the_normal_distribution(shape: tuple[int, ...], ridge: float) -> None:
    root, y = normal(12, 20), normal(*shape, seed=1)
    gram = root @ root.T
    covariance = (gram + ridge * gram.trace() / 12 * torch.eye(12, dtype=torch.float64)).numpy()
    expected = np.sum(multivariate_normal(np.zeros(12), covariance).logpdf(y.reshape(12, -1).T.numpy()))
    np.testing.assert_allclose(float(ntkit.log_marginal_likelihood(gram, y, ridge)), expected, rtol=1e-11)


def test_a_limit_is_searched_like_its_module() -> None:
    x, y = normal(20, 3), normal(20, seed=1)
    net = _net()
    found, expected = (ntkit.evidence(one, x, y, max_steps=3) for one in (ntkit.infinite_width(net, b_std=0.3), net))
    assert (found.w_std, found.b_std, found.ridge) == (expected.w_std, expected.b_std, expected.ridge)
    torch.testing.assert_close(found.limit.nngp(x), expected.limit.nngp(x), rtol=0, atol=0)
    own = ntkit.infinite_width(ntkit.parametrize_ntk(_net(), w_std=1.2, b_std=0.3))
    assert ntkit.evidence(own, x, y, max_steps=1).limit is own


def test_derivatives() -> None:
    root, y = normal(6, 8).requires_grad_(), normal(6, 2, seed=1).requires_grad_()
    ridge = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b, r: ntkit.log_marginal_likelihood(a @ a.T, b, r), (root, y, ridge))


def test_singular_matrix_has_no_density() -> None:
    with pytest.raises(SingularKernelError, match="larger ridge"):
        ntkit.log_marginal_likelihood(torch.ones(3, 3), torch.ones(3))


@pytest.mark.parametrize("kernel", ["nngp", "ntk"])
def test_maximum_is_stationary_and_beats_a_grid(kernel: Any) -> None:
    x, y = normal(25, 3), normal(25, 2, seed=1)
    y[:, 0] += 2 * x[:, 0].sin()
    best = ntkit.evidence(_net(), x, y, kernel)

    def value(w_std: float, b_std: float, ridge: float) -> float:
        limit = ntkit.infinite_width(_net(), w_std=w_std, b_std=b_std)
        return float(ntkit.log_marginal_likelihood(limit.ntk(x) if kernel == "ntk" else limit.nngp(x), y, ridge))

    own = (best.w_std, best.b_std, best.ridge)
    assert abs(value(*own) - best.log_marginal_likelihood) < 1e-8
    for factors in np.ndindex(3, 3, 3):
        other = [value_ * (0.9, 1.0, 1.1)[factor] for value_, factor in zip(own, factors, strict=True)]
        assert value(*other) < best.log_marginal_likelihood + 1e-3
    assert "L-BFGS" in best.status
    assert best.depth is None


def test_recovers_what_drew_the_data() -> None:
    """Targets drawn from the process itself: the gains come back to within what 60 outputs of 30 points tell."""
    x = normal(30, 3)
    truth = ntkit.infinite_width(_net(), w_std=1.2, b_std=0.7).nngp(x)
    noise = 0.05 * float(truth.diagonal().mean())
    draws = torch.linalg.cholesky(truth) @ normal(30, 60, seed=1) + noise**0.5 * normal(30, 60, seed=2)
    best = ntkit.evidence(_net(), x, draws)
    np.testing.assert_allclose([best.w_std, best.b_std, best.ridge], [1.2, 0.7, 0.05], rtol=0.15)


def test_depths_are_compared_and_what_is_fixed_stays() -> None:
    x, y = normal(15, 3), normal(15, seed=1)
    best = ntkit.evidence(_net, x, y, fixed=["w_std"], w_std=1.1, depths=[1, 3])
    assert best.w_std == 1.1
    assert set(best.by_depth) == {1, 3}
    assert best.depth == max(best.by_depth, key=lambda depth: best.by_depth[depth])
    assert best.log_marginal_likelihood == best.by_depth[best.depth]
    alone = ntkit.evidence(_net(best.depth), x, y, fixed=["w_std"], w_std=1.1)
    assert abs(alone.log_marginal_likelihood - best.log_marginal_likelihood) < 1e-9


@pytest.mark.parametrize("gains", [(1.4, 0.1, 0.3), (0.7, 0.9, 0.01), (2.0, 0.3, 1.5)])
def test_weights_are_copies(gains: tuple[float, float, float]) -> None:
    """The same function of gains and ridge, so that both searches go the same way."""
    settings: dict[str, Any] = dict(zip(("w_std", "b_std", "ridge"), gains, strict=True), max_steps=0)
    x, y, copies = normal(9, 3), normal(9, 2, seed=1), torch.tensor([1, 2, 1, 3, 1, 1, 2, 1, 4])
    weighted = ntkit.evidence(_net(), x, y, weights=copies.double(), **settings).log_marginal_likelihood
    repeated = ntkit.evidence(_net(), x.repeat_interleave(copies, 0), y.repeat_interleave(copies, 0), **settings)
    assert weighted == pytest.approx(repeated.log_marginal_likelihood, rel=1e-11)
    once, ones = (ntkit.evidence(_net(), x, y, weights=w, **settings) for w in (None, torch.ones(9)))
    assert ones.log_marginal_likelihood == pytest.approx(once.log_marginal_likelihood, rel=1e-12)
    assert weighted != pytest.approx(once.log_marginal_likelihood, rel=1e-2)


@pytest.mark.parametrize("weights", [torch.ones(3), torch.zeros(4), torch.tensor([1.0, -1.0, 1.0, 1.0])])
def test_bad_weights(weights: Tensor) -> None:
    with pytest.raises(InputError, match="weights must be 4 positive numbers"):
        ntkit.evidence(_net(), normal(4, 3), normal(4), weights=weights)


def test_all_fixed_is_only_evaluated() -> None:
    x, y = normal(10, 3), normal(10, seed=1)
    found = ntkit.evidence(_net(), x.float(), y.float(), fixed=["w_std", "b_std", "ridge"], b_std=0.0)
    limit = ntkit.infinite_width(_net(), b_std=0.0)
    expected = ntkit.log_marginal_likelihood(limit.nngp(x.float().double()), y.float().double(), 1e-2)
    assert found.log_marginal_likelihood == float(expected)
    assert "no search" in found.status


X, Y = normal(4, 3), normal(4)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((_net(), X.numpy(), Y), {}, InputTypeError, "torch.Tensor"),
        ((_net(), X, Y[:3]), {}, InputError, "n = 4"),
        ((_net(), X, Y), {"kernel": "rbf"}, InputError, "nngp"),
        ((_net(), X, Y), {"fixed": "w_std"}, InputError, "fixed must be"),
        ((_net(), X, Y), {"fixed": ["depth"]}, InputError, "fixed must be"),
        ((_net(), X, Y), {"b_std": 0.0}, InputError, "start inside"),
        ((_net(), X, Y), {"w_std": "big"}, InputTypeError, "number"),
        ((_net(), X, Y), {"max_steps": -1}, InputError, "max_steps"),
        ((_net(), X, Y), {"depths": [1]}, InputTypeError, "lambda depth"),
        ((_net, X, Y), {}, InputTypeError, "depths="),
        ((_net, X, Y), {"depths": []}, InputTypeError, "at least one"),
    ],
)
def test_bad_input_is_explained(arguments: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ntkit.evidence(*arguments, **options)


def test_gains_of_a_module_in_the_ntk_parametrisation_stay():
    """Only the ridge is searched: the gains are part of the module."""
    x, y = torch.linspace(-1, 1, 12, dtype=torch.float64)[:, None], torch.linspace(0, 1, 12, dtype=torch.float64)
    net = mlp(1, 8, 1)
    fixed = ntkit.evidence(net, x, y, w_std=1.3, b_std=0.2, fixed=("w_std", "b_std"))
    own = ntkit.evidence(ntkit.parametrize_ntk(net, w_std=1.3, b_std=0.2), x, y)
    assert (own.w_std, own.b_std) == (None, None)
    assert own.ridge == pytest.approx(fixed.ridge, rel=1e-5)
    assert own.log_marginal_likelihood == pytest.approx(fixed.log_marginal_likelihood, rel=1e-9)
    torch.testing.assert_close(own.limit.nngp(x), fixed.limit.nngp(x))
    with pytest.raises(InputError, match="w_std=1.3, but w_std=1 is given"):
        ntkit.evidence(net, x, y, w_std=1.0)


def test_search_starts_at_the_defaults():
    x, y = torch.linspace(-1, 1, 6, dtype=torch.float64)[:, None], torch.linspace(0, 1, 6, dtype=torch.float64)
    net = mlp(1, 8, 1)
    start = ntkit.evidence(net, x, y, max_steps=0)
    assert (start.w_std, start.b_std, start.ridge) == (pytest.approx(2**0.5), pytest.approx(0.1), pytest.approx(0.01))


def test_the_search_steps_back_from_gains_for_which_the_kernel_diverges():
    def diverges(log_values):
        raise QuadratureError("the expectation diverges")

    value, slope = _guarded(diverges)(np.ones(2))
    assert value == 1e300 and slope.tolist() == [0.0, 0.0]
