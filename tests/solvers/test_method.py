from __future__ import annotations

import pytest
import torch

from ntkit._src.gram import DenseGram
from ntkit._src.solvers._method import count, generator, relative_residual, trace_mean
from ntkit.errors import InputError, InputTypeError


def test_counts() -> None:
    assert count(3, "rank") == 3
    assert count(0, "rank", least=0) == 0
    for bad in (True, 2.0, "2"):
        with pytest.raises(InputTypeError, match="rank must be a whole number"):
            count(bad, "rank")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 1. Got 0"):
        count(0, "rank")


def test_residual_is_the_worst_column_and_zero_targets_count_as_one() -> None:
    y = torch.tensor([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]])
    remainder = torch.tensor([[0.0, 0.3, 0.0], [1.0, 0.4, 0.25]])
    assert relative_residual(remainder, y) == pytest.approx(0.5)
    assert relative_residual(remainder[:, [0, 2]], y[:, [0, 2]]) == pytest.approx(0.25)


def test_trace_mean_and_generator() -> None:
    assert trace_mean(DenseGram(torch.diag(torch.tensor([1.0, 2.0, 6.0])))) == 3.0
    assert torch.equal(torch.rand(3, generator=generator(4)), torch.rand(3, generator=torch.Generator().manual_seed(4)))
