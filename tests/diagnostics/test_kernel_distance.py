from __future__ import annotations

import pytest
import torch
from tests.cases import normal

from ntkit.diagnostics import kernel_distance
from ntkit.errors import InputError, InputTypeError


def semidefinite(seed, n=6, rank=6, dtype=torch.float64):
    a = normal(n, rank, seed=seed)
    return (a @ a.T).to(dtype)


@pytest.mark.parametrize("rank", [1, 2, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_a_distance_of_directions(rank, dtype):
    first, second = semidefinite(0, rank=rank, dtype=dtype), semidefinite(1, rank=rank, dtype=dtype)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    found = kernel_distance(first, second)
    cosine = (first.double() * second.double()).sum() / (first.double().norm() * second.double().norm())
    assert float(found) == pytest.approx(1 - float(cosine), abs=tolerance) and found.dtype == dtype
    assert torch.equal(found, kernel_distance(second, first)) and 0 <= float(found) <= 1
    assert float(kernel_distance(first, 7.3 * first)) < tolerance**2


def test_orthogonal_projections_are_as_far_apart_as_can_be():
    assert float(kernel_distance(torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 2.0])))) == 1.0


def test_small_changes_keep_their_digits():
    # For a change E orthogonal to H the distance is |E|^2 / (2 |H|^2) to leading order.
    first, change = torch.diag(torch.tensor([1.0, 0.0]).double()), torch.diag(torch.tensor([0.0, 1.0]).double())
    for size in (1e-4, 1e-9):
        assert float(kernel_distance(first, first + size * change)) == pytest.approx(size**2 / 2, rel=1e-6)


def test_it_carries_gradients():
    gram = semidefinite(0).requires_grad_()
    kernel_distance(gram, semidefinite(1)).backward()
    assert gram.grad is not None and float((gram.grad * gram.detach()).sum()) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        (torch.eye(2), torch.eye(3), InputError, "on the same points"),
        (torch.eye(2), torch.eye(2).double(), InputTypeError, "the same dtype and device"),
        (torch.zeros(2, 2), torch.eye(2), InputError, "H must not be zero"),
        (torch.eye(2), torch.zeros(2, 2), InputError, "H2 must not be zero"),
        (torch.eye(2), torch.tensor([[1.0, float("nan")], [0.0, 1.0]]), InputError, "NaN"),
        (torch.eye(2), torch.tensor([[1.0, 1.0], [0.0, 1.0]]), InputError, "symmetric"),
        (torch.ones(2), torch.eye(2), InputError, "shape"),
    ],
)
def test_bad_input(first, second, error, message):
    with pytest.raises(error, match=message):
        kernel_distance(first, second)
