"""Traces of words in free families: the paper's lemmas, its equations, and averages over random rotations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ntkit.errors import InputError
from ntkit_studies.methods import free_trace
from ntkit_studies.methods._free_trace import _noncrossing
from ntkit_studies.methods._predict_alignment import predict_from_moments
from ntkit_studies.tasks._draws import random_rotation


def tr(*factors: Tensor) -> float:
    product = factors[0]
    for one in factors[1:]:
        product = product @ one
    return float(product.trace()) / len(product)


def family(m: int, d: int, seed: int) -> list[Tensor]:
    """Draw m symmetric matrices that share directions, with traces."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.diag(torch.rand(d, generator=generator, dtype=torch.float64))
    drawn = (torch.randn(d, d, generator=generator, dtype=torch.float64) / d**0.5 for _ in range(m))
    return [common * (1 + i) + (one + one.T) / 4 for i, one in enumerate(drawn)]


def centred(one: Tensor) -> Tensor:
    return one - tr(one) * torch.eye(len(one), dtype=one.dtype)


def test_the_lemmas_of_the_paper() -> None:
    C, R = [centred(one) for one in family(4, 30, 0)], family(4, 30, 1)
    t, bar = [tr(one) for one in R], [centred(one) for one in R]
    assert free_trace(C[:1], R[:1]) == pytest.approx(0, abs=1e-12)  # 11
    assert free_trace(C[:2], R[:2]) == pytest.approx(t[0] * t[1] * tr(C[0], C[1]))  # 12
    assert free_trace(C[:3], R[:3]) == pytest.approx(math.prod(t[:3]) * tr(*C[:3]))  # 13
    expected = math.prod(t) * tr(*C)
    expected += t[0] * t[2] * tr(bar[1], bar[3]) * tr(C[0], C[1]) * tr(C[2], C[3])
    expected += t[1] * t[3] * tr(bar[0], bar[2]) * tr(C[1], C[2]) * tr(C[0], C[3])
    assert free_trace(C, R) == pytest.approx(expected)  # 14


def test_equations_19_21_and_27_are_such_words() -> None:
    A, B = family(2, 25, 2)
    (R,) = family(1, 25, 3)
    moments = tuple(tr(*[R] * p) for p in range(1, 5))
    predicted = predict_from_moments(A, B, moments)  # type: ignore[arg-type]
    assert free_trace([A, A, B], [R] * 3) == pytest.approx(predicted.numerator)
    assert free_trace([A, A], [R] * 2) == pytest.approx(predicted.first)
    assert free_trace([A, B, A, B], [R] * 4) == pytest.approx(predicted.second)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
def test_words_are_averages_over_random_rotations(m) -> None:
    d, draws, generator = 120, 30, torch.Generator().manual_seed(4)
    C, R = family(m, d, 5), family(m, d, 6)
    found = []
    for _ in range(draws):
        turn = random_rotation(d, generator)
        found.append(tr(*(one for c, r in zip(C, R, strict=True) for one in (c, turn @ r @ turn.T))))
    mean = sum(found) / draws
    error = (sum((one - mean) ** 2 for one in found) / draws / (draws - 1)) ** 0.5
    assert free_trace(C, R) == pytest.approx(mean, abs=4 * error + 20 / d**2 * abs(mean))


def test_noncrossing_partitions_are_counted_by_catalan_numbers() -> None:
    found = [list(_noncrossing(m)) for m in range(1, 7)]
    assert [len(one) for one in found] == [math.comb(2 * m, m) // (m + 1) for m in range(1, 7)]
    assert all(len(set(one)) == len(one) for one in found)
    assert ((0, 2), (1, 3)) not in found[3]


def test_bad_words() -> None:
    with pytest.raises(InputError, match="same number"):
        free_trace([torch.eye(2)], [])
    with pytest.raises(InputError, match="shape"):
        free_trace([torch.eye(2)], [torch.eye(3)])
