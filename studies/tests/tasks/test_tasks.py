"""Synthetic tasks of feature learning: labels entry by entry, exact gradient outer products, the laws of the inputs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError
from ntkit_studies import tasks


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _chain(x: Tensor, r: int) -> Tensor:
    return sum(x[..., k % r] * x[..., (k + 1) % r] for k in range(1, r + 1))  # type: ignore[return-value]


@pytest.mark.parametrize("alpha", [None, 0.0, 1.5])
@pytest.mark.parametrize("r", range(1, 7))
def test_chain_monomial(r: int, alpha: float | None) -> None:
    plain = tasks.chain_monomial(50, 7, r, _generator(), alpha=alpha, scaled=False)
    torch.testing.assert_close(plain.y, _chain(plain.x, r))
    gradient = torch.autograd.functional.jacobian(lambda z: _chain(z, r), torch.zeros(7, dtype=torch.float64))
    assert not gradient.any()
    hessian = torch.autograd.functional.hessian(lambda z: _chain(z, r), torch.zeros(7, dtype=torch.float64))
    # The gradient is H x, so its outer product has the mean H Sigma H.
    torch.testing.assert_close(plain.egop, hessian @ plain.covariance @ hessian, rtol=1e-12, atol=1e-14)
    scaled = tasks.chain_monomial(50, 7, r, _generator(), alpha=alpha)
    ratio = plain.y / scaled.y
    torch.testing.assert_close(ratio, ratio[0].expand(50))
    torch.testing.assert_close(scaled.egop * ratio[0] ** 2, plain.egop)


@pytest.mark.parametrize("alpha", [None, 1.0])
def test_high_rank_quadratic(alpha: float | None) -> None:
    generator = _generator()
    Q = torch.randn(5, 5, generator=generator, dtype=torch.float64)  # drawn first
    task = tasks.high_rank_quadratic(30, 5, _generator(), alpha=alpha, scaled=False)
    torch.testing.assert_close(task.y, ((task.x @ Q.T) ** 2).sum(1))
    torch.testing.assert_close(task.egop, 4 * Q.T @ Q @ task.covariance @ Q.T @ Q)


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_labels_have_standard_deviation_one(alpha: float | None) -> None:
    for task in (
        tasks.chain_monomial(40000, 6, 5, _generator(), alpha=alpha),
        tasks.high_rank_quadratic(40000, 6, _generator(), alpha=alpha),
    ):
        # The fourth moment of a quadratic form is at most 15 variances squared, so this is four standard errors.
        assert abs(float(task.y.var()) - 1) < 4 * (14 / 40000) ** 0.5


def test_spectral_gaussian() -> None:
    drawn = tasks.spectral_gaussian(50000, 4, 2.0, _generator())
    torch.testing.assert_close(drawn.eigenvalues, torch.tensor([1 / 2, 1 / 5, 1 / 10, 1 / 17], dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.eigvalsh(drawn.covariance).flip(0), drawn.eigenvalues)
    error = drawn.x.T @ drawn.x / 50000 - drawn.covariance
    assert float(error.abs().max()) < 5 * 0.5 * (2 / 50000) ** 0.5
    isotropic = tasks.spectral_gaussian(10, 4, None, _generator())
    assert torch.equal(isotropic.covariance, torch.eye(4, dtype=torch.float64))


def test_alignment_reversing() -> None:
    n = 60
    data = tasks.alignment_reversing(n, n, 0.5, _generator())
    assert data.x.shape == (n, n)
    torch.testing.assert_close(data.y, torch.tensor([1.0] * 30 + [0.0] * 30).double() + 1e-5)
    first = tasks.alignment_reversing(20000, 3, 1.0, _generator(1)).x
    expected = torch.ones(3, 3) + 0.5 * torch.eye(3) + 1e-4 * torch.eye(3)
    assert float((first.T @ first / 20000 - expected.double()).abs().max()) < 0.1
    # All rows of the second kind: X_2^T X_2 is (X_1^T X_1)^-2, whose largest eigenvalues tower over the noise.
    generator = _generator(2)
    common = torch.randn(n, 1, generator=generator, dtype=torch.float64)
    x1 = common + 0.5**0.5 * torch.randn(n, n, generator=generator, dtype=torch.float64)
    data = tasks.alignment_reversing(n, n, 1 / n, _generator(2))
    x2 = data.x[1:]
    inverse = torch.linalg.inv(x1.T @ x1)
    top = torch.linalg.eigh(inverse @ inverse)
    found = torch.linalg.eigh(x2.T @ x2)
    assert float((top.eigenvectors[:, -1] @ found.eigenvectors[:, -1]).abs()) > 0.99
    assert float(found.eigenvalues[-1] / top.eigenvalues[-1]) == pytest.approx(1, abs=0.1)  # one row is missing


@pytest.mark.parametrize("gamma", [0.3, 1.0])
def test_alignment_reversing_with_pseudo_inverse(gamma: float) -> None:
    data = tasks.alignment_reversing(20, 30, gamma, _generator(), pseudo_inverse=True)
    assert data.x.shape == (20, 30) and bool(torch.isfinite(data.x).all())


def test_the_generator_decides() -> None:
    def draws(seed: int) -> list[Tensor]:
        return [
            tasks.chain_monomial(5, 4, 2, _generator(seed), alpha=1.0).x,
            tasks.high_rank_quadratic(5, 4, _generator(seed)).y,
            tasks.spectral_gaussian(5, 4, 1.0, _generator(seed)).x,
            tasks.alignment_reversing(5, 4, 0.6, _generator(seed)).x,
        ]

    assert all(torch.equal(a, b) for a, b in zip(draws(1), draws(1), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(draws(1), draws(2), strict=True))


def test_split() -> None:
    task = tasks.chain_monomial(10, 4, 2, _generator())
    train, test = task.split(7)
    assert len(train.x) == 7 and len(test.y) == 3 and torch.equal(torch.cat([train.y, test.y]), task.y)
    with pytest.raises(InputError, match="between 1 and 9"):
        task.split(10)


@pytest.mark.parametrize(
    ("draw", "error", "message"),
    [
        (lambda g: tasks.chain_monomial(5, 3, 4, g), InputError, "r must be at most d = 3"),
        (lambda g: tasks.chain_monomial(5, 3, 0, g), InputError, "r must be at least 1"),
        (lambda g: tasks.chain_monomial(0, 3, 1, g), InputError, "n must be at least 1"),
        (lambda g: tasks.chain_monomial(5, 3.0, 1, g), InputTypeError, "d must be an integer"),
        (lambda g: tasks.chain_monomial(5, 3, 1, 0), InputTypeError, "torch.Generator"),
        (
            lambda g: tasks.high_rank_quadratic(5, 3, g, alpha=-1.0),
            InputError,
            "alpha must be finite and not negative",
        ),
        (lambda g: tasks.high_rank_quadratic(5, 3, None), InputTypeError, "torch.Generator"),
        (lambda g: tasks.spectral_gaussian(5, 3, "a", g), InputTypeError, "alpha must be a number"),
        (lambda g: tasks.alignment_reversing(5, 3, 0.0, g), InputError, "gamma must be above 0"),
        (lambda g: tasks.alignment_reversing(5, 3, 1.2, g), InputError, "gamma must be above 0"),
        (lambda g: tasks.alignment_reversing(5, 3, 0.01, g), InputError, "at least one of the n = 5"),
        (lambda g: tasks.alignment_reversing(5, 9, 0.5, g), InputError, "n must be at least d = 9"),
        (lambda g: tasks.alignment_reversing(5, 3, True, g), InputTypeError, "gamma must be a number"),
    ],
)
def test_bad_arguments(draw, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        draw(_generator())
