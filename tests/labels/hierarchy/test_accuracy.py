"""How many neurons are drawn, on a source whose error is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ntkit._src.finite import Estimate
from ntkit._src.labels.hierarchy._accuracy import FIRST, PROBES, Accuracy, draw_until, measure


class Source:
    """The largest entry is 2, and its error falls with the square root of the number of neurons."""

    def __init__(self, n: int, constant: float) -> None:
        self.x_train, self.n_samples, self.constant = torch.zeros(n, 1), 1, constant
        self.asked: list[tuple[int, int]] = []

    def estimate_fourth(self, x1: Tensor, x2: Tensor | None, u: Tensor, v: Tensor) -> Estimate:
        assert x2 is None
        self.asked.append((self.n_samples, len(x1)))
        mean = torch.tensor([[-2.0, 1.0], [1.0, 0.5]]) * (u.sum() * v.sum())
        return Estimate(mean, torch.full((2, 2), 0.5).fill_diagonal_(1.0) * self.constant / self.n_samples**0.5)


ONE = torch.ones(1, 1)


def test_error_relative_to_the_largest_entry() -> None:
    source = Source(100, 0.1)
    assert measure(source, ONE, ONE) == Accuracy(pytest.approx(0.05), 1)  # type: ignore[arg-type]
    assert source.asked == [(1, 25)]
    assert measure(source, 0 * ONE, ONE).error == 0
    assert measure(Source(PROBES, 0.1), ONE, ONE, 0.01) == Accuracy(pytest.approx(0.05), 1, 0.01)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rtol", "most", "drawn", "reached"),
    [
        (0.02, 2**18, [FIRST], True),
        (0.01, 2**18, [FIRST, 16384], True),  # 4 and a fifth times as many, and then a power of two
        (0.0135, 2**18, [FIRST, 8192], True),
        (0.0001, 2**18, [FIRST, 2**15, 2**18], False),  # at most 16 times as many at once
        (0.001, 3000, [FIRST, 3000], False),
        (0.001, 100, [100], False),
    ],
)
def test_neurons_drawn(rtol: float, most: int, drawn: list[int], reached: bool) -> None:
    source = Source(4, 0.04 * 2048**0.5)
    found = draw_until(source, ONE, ONE, rtol, most)
    assert [count for count, _ in source.asked] == drawn
    assert found.reached == reached
    assert found == Accuracy(pytest.approx(0.02 * (2048 / drawn[-1]) ** 0.5), drawn[-1], rtol)  # type: ignore[arg-type]


def test_sentence() -> None:
    assert str(Accuracy(0.0312, 64)) == "standard error 3.1e-02 of the largest entry, from 64 neurons"
    assert str(Accuracy(0.5, 64, 0.1)).endswith("from 64 neurons, where 1.0e-01 was asked for")
    assert Accuracy(0.5, 64).reached
    assert not Accuracy(0.5, 64, 0.1).reached
