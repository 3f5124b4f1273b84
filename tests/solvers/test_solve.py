"""ntkit.solve against NumPy in float64, on easy, singular and impossible systems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import normal
from torch import Tensor

import ntkit
from ntkit._src.solvers import factorize
from ntkit.errors import InputError, InputTypeError, JitterWarning, SingularKernelError


def _gram(n: int = 40, dtype: torch.dtype = torch.float64, decay: float = 2.0) -> Tensor:
    """A full-rank Gram matrix with eigenvalues 1/i^decay."""
    generator = torch.Generator().manual_seed(n)
    basis = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
    spectrum = torch.arange(1, n + 1, dtype=torch.float64) ** -decay
    gram: Tensor = (basis * spectrum) @ basis.T
    return ((gram + gram.T) / 2).to(dtype)


def _targets(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(*shape, seed=7).to(dtype)


class Linear(ntkit.Kernel):
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return x1 @ (x1 if x2 is None else x2).T

    def diag(self, x: Tensor) -> Tensor:
        return (x * x).sum(1)


@pytest.mark.parametrize("shape", [(40,), (40, 1), (40, 3)])
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 2.0])
@pytest.mark.parametrize("method", ["auto", "cholesky"])
def test_agrees_with_numpy(shape: tuple[int, ...], ridge: float, method: str) -> None:
    gram, y = _gram(), _targets(*shape)
    matrix = gram.numpy() + ridge * np.trace(gram.numpy()) / 40 * np.eye(40)
    solution = ntkit.solve(gram, y, method=method, ridge=ridge)
    assert solution.value.shape == y.shape
    np.testing.assert_allclose(solution.value.numpy(), np.linalg.solve(matrix, y.numpy()), rtol=1e-9, atol=1e-9)
    assert solution.stats["jitter"] == 0
    assert solution.stats["residual"] < 1e-12
    assert "no jitter" in solution.status


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_scale_of_the_kernel_does_not_change_the_fit(scale: float) -> None:
    gram, y = _gram(), _targets(40)
    fitted = gram @ ntkit.solve(gram, y, ridge=0.1).value
    scaled = (scale * gram) @ ntkit.solve(scale * gram, y, ridge=0.1).value
    torch.testing.assert_close(scaled, fitted, rtol=1e-9, atol=1e-12)


def test_refinement_recovers_digits_in_float32() -> None:
    gram, y = _gram(dtype=torch.float32), _targets(40, dtype=torch.float32)
    exact = torch.linalg.solve(gram.double(), y.double())
    plain = torch.cholesky_solve(y[:, None], torch.linalg.cholesky(gram))[:, 0]
    solution = ntkit.solve(gram, y)
    assert solution.value.dtype == torch.float32
    assert (solution.value - exact).norm() < 0.2 * (plain - exact).norm()
    assert solution.stats["refinements"] >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repeated_inputs_need_jitter_and_average_their_targets(dtype: torch.dtype) -> None:
    gram = _gram(30, dtype, decay=1.0).repeat(2, 2)
    y = _targets(60, dtype=dtype)
    with pytest.warns(JitterWarning, match=r"ridge="):
        solution = ntkit.solve(gram, y)
    assert 0 < solution.stats["jitter"] <= {torch.float32: 1e-4, torch.float64: 1e-6}[dtype]
    assert "jitter" in solution.status
    assert "no jitter" not in solution.status
    average = ((y[:30] + y[30:]) / 2).repeat(2)
    accuracy = 0.05 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(gram @ solution.value, average, rtol=0, atol=accuracy)


def test_row_of_zeros_is_jittered() -> None:
    gram = torch.diag(torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64))
    with pytest.warns(JitterWarning):
        value = ntkit.solve(gram, torch.ones(3, dtype=torch.float64)).value
    torch.testing.assert_close(value[[0, 2]], torch.tensor([1.0, 0.5], dtype=torch.float64))


def test_badly_scaled_but_regular_matrix_needs_no_jitter() -> None:
    diagonal = torch.logspace(0, -30, 5, dtype=torch.float64)
    solution = ntkit.solve(torch.diag(diagonal), torch.ones(5, dtype=torch.float64))
    assert solution.stats["jitter"] == 0
    torch.testing.assert_close(solution.value, 1 / diagonal)


def test_ridge_replaces_jitter() -> None:
    gram = _gram(30, decay=1.0).repeat(2, 2)
    assert ntkit.solve(gram, _targets(60), ridge=1e-8).stats["jitter"] == 0


def test_zero_targets() -> None:
    solution = ntkit.solve(_gram(), torch.zeros(40, 2, dtype=torch.float64))
    assert not solution.value.any()
    assert solution.stats["residual"] == 0


def test_indefinite_and_zero_matrices_are_singular() -> None:
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
    with pytest.raises(SingularKernelError, match=r"pass a ridge above 1e-06"):
        ntkit.solve(indefinite, torch.ones(2, dtype=torch.float64))
    with pytest.raises(SingularKernelError, match=r"or compute it in float64"):
        ntkit.solve(indefinite.float(), torch.ones(2))
    with pytest.raises(SingularKernelError, match=r"inputs zero"):
        ntkit.solve(torch.zeros(3, 3), torch.ones(3), ridge=1.0)
    with pytest.raises(SingularKernelError):
        factorize(indefinite)


def test_kernel_with_points() -> None:
    x, y = _targets(20, 30), _targets(20)
    torch.testing.assert_close(ntkit.solve(Linear(), y, x=x).value, ntkit.solve(x @ x.T, y).value)
    with pytest.raises(InputError, match=r"x=x"):
        ntkit.solve(Linear(), y)
    with pytest.raises(InputError, match=r"leave x out"):
        ntkit.solve(x @ x.T, y, x=x)


def test_factor_solves_many_right_hand_sides() -> None:
    gram = _gram()
    factor = factorize(gram, ridge=0.5)
    for y in (_targets(40), _targets(40, 4)):
        torch.testing.assert_close(factor.solve(y).value, ntkit.solve(gram, y, ridge=0.5).value)
    with pytest.warns(JitterWarning):
        assert factorize(gram.repeat(2, 2)).jitter > 0


def test_gradients_are_those_of_the_inverse() -> None:
    root = _targets(6, 6).requires_grad_()
    y = _targets(6, 2).requires_grad_()

    def value(root: Tensor, y: Tensor) -> Tensor:
        return ntkit.solve(root @ root.T, y, ridge=0.3).value

    assert torch.autograd.gradcheck(value, (root, y))


Y = torch.ones(2)
EYE = torch.eye(2)


@pytest.mark.parametrize(
    ("gram", "y", "options", "error", "message"),
    [
        (EYE.numpy(), Y, {}, InputTypeError, "torch.as_tensor"),
        (EYE.long(), Y, {}, InputTypeError, "float32 or float64"),
        (EYE.half(), Y, {}, InputTypeError, "float32 or float64"),
        (torch.ones(2, 3), Y, {}, InputError, r"shape \(n, n\)"),
        (torch.ones(2), Y, {}, InputError, r"shape \(n, n\)"),
        (torch.ones(0, 0), torch.ones(0), {}, InputError, "n > 0"),
        (EYE * float("nan"), Y, {}, InputError, "NaN"),
        (torch.diag(torch.tensor([1.0, float("inf")])), Y, {}, InputError, "infinite"),
        (torch.tensor([[1.0, 0.5], [0.0, 1.0]]), Y, {}, InputError, "symmetric"),
        (EYE, Y.numpy(), {}, InputTypeError, "torch.as_tensor"),
        (EYE, torch.ones(3), {}, InputError, "n = 2"),
        (EYE, torch.ones(2, 0), {}, InputError, r"\(2, 0\)"),
        (EYE, torch.ones(2, 1, 1), {}, InputError, r"\(2, 1, 1\)"),
        (EYE, Y.double(), {}, InputTypeError, "y.to"),
        (EYE, Y.long(), {}, InputTypeError, "y.to"),
        (EYE, Y.to("meta"), {}, InputTypeError, "hold values"),
        (EYE, Y * float("inf"), {}, InputError, "infinite"),
        (EYE, Y, {"ridge": -1.0}, InputError, "not negative"),
        (EYE, Y, {"ridge": float("nan")}, InputError, "finite"),
        (EYE, Y, {"ridge": "big"}, InputTypeError, "number"),
        (EYE, Y, {"ridge": True}, InputTypeError, "number"),
        (EYE, Y, {"method": "magic"}, InputError, "'cholesky'"),
    ],
)
def test_bad_input_is_explained(
    gram: Any, y: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ntkit.solve(gram, y, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_matrices_are_factorised_in_place(dtype: torch.dtype) -> None:
    """From 1024 rows on LAPACK is called directly; the factor is still a lower triangle with zeros above."""
    gram, y = _gram(1100, dtype, decay=1.0), _targets(1100, 2, dtype=dtype)
    before = gram.clone()
    factor = factorize(gram, ridge=0.01)
    matrix = gram.double() + 0.01 * gram.double().trace() / 1100 * torch.eye(1100, dtype=torch.float64)
    torch.testing.assert_close(gram, before, rtol=0, atol=0)
    assert not factor.lower.triu(1).any()
    eps = torch.finfo(dtype).eps
    lower = factor.lower.double()
    torch.testing.assert_close(lower @ lower.T, matrix, rtol=0, atol=20 * eps)
    found = factor.solve(y).value.double()
    exact = torch.linalg.solve(matrix, y.double())
    assert float((found - exact).norm() / exact.norm()) < 1.5e4 * eps  # the condition number
    with pytest.warns(JitterWarning):
        assert factorize(_gram(600, dtype, decay=1.0).repeat(2, 2)).jitter > 0


@pytest.mark.parametrize("method", ["auto", "indefinite", "cg", "cholesky"])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_a_kept_system_solves_further_right_hand_sides(
    method: str, ridge: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gram = _gram()
    first = ntkit.solve(gram, _targets(40), method=method, ridge=ridge, keep_system=True)
    assert ntkit.solve(gram, _targets(40), method=method, ridge=ridge).system is None
    exact = np.linalg.solve(gram.numpy() + ridge * np.trace(gram.numpy()) / 40 * np.eye(40), _targets(40, 3).numpy())
    monkeypatch.setattr("torch.linalg.cholesky_ex", None)  # nothing is factorised again
    monkeypatch.setattr("torch.linalg.ldl_factor_ex", None)
    assert first.system is not None
    again = first.system.solve(_targets(40, 3))
    np.testing.assert_allclose(again.value.numpy(), exact, rtol=1e-6, atol=1e-6)
    assert again.system is None
