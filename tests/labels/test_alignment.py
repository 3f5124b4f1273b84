from __future__ import annotations

import pytest
import torch
from tests.cases import mlp, normal

import ntkit
from ntkit.errors import InputError, InputTypeError


def problem(n=15, classes=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64) + y[:, None]
    net = mlp(3, 8, 1)
    return ntkit.infinite_width(net, b_std=0.5).ntk(x), y


def by_loops(gram, y, centred):
    n = len(y)
    two = len(set(y.tolist())) == 2
    target = torch.tensor([[1.0 if a == b else (-1.0 if two else 0.0) for b in y] for a in y], dtype=gram.dtype)
    if centred:
        h = torch.eye(n, dtype=gram.dtype) - 1 / n
        gram, target = h @ gram @ h, h @ target @ h
    product = lambda a, b: sum(float(a[i, j] * b[i, j]) for i in range(n) for j in range(n))  # noqa: E731
    return product(gram, target) / (product(gram, gram) * product(target, target)) ** 0.5


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("centred", [False, True])
def test_is_the_cosine_of_the_two_matrices(classes, centred):
    gram, y = problem(classes=classes)
    assert float(ntkit.alignment(gram, y, centred)) == pytest.approx(by_loops(gram, y, centred), rel=1e-12)


@pytest.mark.parametrize("centred", [False, True])
def test_optimal_kernel_is_aligned(centred):
    _, y = problem()
    signs = (2 * y - 1).double()
    assert float(ntkit.alignment(3 * torch.outer(signs, signs), y, centred)) == pytest.approx(1, abs=1e-12)
    _, y = problem(classes=5)
    same = (y[:, None] == y).double()
    assert float(ntkit.alignment(same, y, centred)) == pytest.approx(1, abs=1e-12)


def test_names_of_classes_and_scale_do_not_matter():
    gram, y = problem()
    value = ntkit.alignment(gram, y)
    for names in (1 - y, 2 * y - 1, y.bool(), y.double() * 0.3):
        torch.testing.assert_close(ntkit.alignment(100 * gram, names), value)


def test_adding_an_estimate_of_the_labels_product_aligns():
    """Section C: <K + c Z, y y^T> = <K, y y^T> + c <Z, y y^T>, and so K + c Z is nearer to y y^T for a good Z."""
    gram, y = problem()
    signs = (2 * y - 1).double()
    target = torch.outer(signs, signs)
    noise = torch.randn(len(y), len(y), generator=torch.Generator().manual_seed(1), dtype=gram.dtype)
    estimate = target + 0.5 * (noise + noise.T)
    inner = lambda a: float((a * target).sum())  # noqa: E731
    assert inner(gram + 0.7 * estimate) == pytest.approx(inner(gram) + 0.7 * inner(estimate), rel=1e-12)
    values = [float(ntkit.alignment(gram + c * estimate, y)) for c in (0.0, 0.1, 0.3, 1.0)]
    assert values == sorted(values) and values[-1] > values[0] + 0.05
    exact = [float(ntkit.alignment(gram + c * target, y)) for c in (0.0, 1.0, 10.0, 1e6)]
    assert exact == sorted(exact) and exact[-1] > 1 - 1e-9


def test_positive_semidefinite_kernels_lie_between_zero_and_one():
    for seed in range(5):
        factor = normal(9, 2, seed=seed)
        for centred in (False, True):
            assert 0 <= float(ntkit.alignment(factor @ factor.T, torch.arange(9) % 2, centred)) <= 1 + 1e-12


def test_dtype_and_gradient():
    gram, y = problem(n=6)
    assert ntkit.alignment(gram.float(), y).dtype == torch.float32
    for centred in (False, True):
        assert torch.autograd.gradcheck(
            lambda g, c=centred: ntkit.alignment(0.5 * (g + g.T), y, c), (gram.requires_grad_(),)
        )


@pytest.mark.parametrize(
    ("gram", "y", "centred", "error", "message"),
    [
        (torch.eye(3), torch.ones(3), False, InputError, "at least two classes"),
        (torch.eye(3), torch.tensor([0, 1]), False, InputError, r"shape \(3,\)"),
        (torch.zeros(3, 3), torch.arange(3), False, InputError, "must not be zero"),
        (torch.ones(3, 3), torch.arange(3), True, InputError, "must not be constant"),
        (torch.full((3, 3), float("nan")), torch.arange(3), False, InputError, "NaN"),
        (torch.eye(3)[:2], torch.arange(2), False, InputError, r"shape \(n, n\)"),
        (torch.eye(3), [0, 1, 1], False, InputTypeError, "torch.Tensor"),
    ],
)
def test_bad_input(gram, y, centred, error, message):
    with pytest.raises(error, match=message):
        ntkit.alignment(gram, y, centred)
