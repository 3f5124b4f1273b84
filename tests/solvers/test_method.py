from __future__ import annotations

import copy
import pickle

import pytest
import torch

from ntkit._src.gram import DenseGram
from ntkit._src.solvers._method import ShiftedGram, relative_residual
from ntkit.errors import SingularKernelError
from ntkit.solvers import Outcome, Status


@pytest.mark.parametrize("outcome", Outcome)
def test_a_sentence_with_its_outcome(outcome: Outcome) -> None:
    status = Status(outcome, "All is well.")
    assert status == "All is well." and str(status) == "All is well."
    assert type(str(status)) is str
    assert status.outcome is outcome
    assert status.converged is (outcome is not Outcome.NOT_CONVERGED)
    for again in (pickle.loads(pickle.dumps(status)), copy.deepcopy(status)):
        assert again == status and again.outcome is outcome


def test_residual_is_the_worst_column_and_zero_targets_count_as_one() -> None:
    y = torch.tensor([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]])
    remainder = torch.tensor([[0.0, 0.3, 0.0], [1.0, 0.4, 0.25]])
    assert relative_residual(remainder, y) == pytest.approx(0.5)
    assert relative_residual(remainder[:, [0, 2]], y[:, [0, 2]]) == pytest.approx(0.25)


def test_shifted_gram() -> None:
    gram = DenseGram(torch.diag(torch.tensor([1.0, 2.0, 6.0])))
    notes: list[str] = []
    matrix = ShiftedGram.of(gram, 0.5, notes.append)
    assert (matrix.scale, matrix.shift) == (3.0, 1.5)
    torch.testing.assert_close(matrix.apply(torch.eye(3)), torch.diag(torch.tensor([2.5, 3.5, 7.5])))
    matrix.note("Here.")
    ShiftedGram.of(gram, 0.5, None).note("Nobody listens.")
    assert notes == ["Here."]
    stats = matrix.stats(0.25, 0.0, 8, iterations=2.0)
    assert stats | {"seconds": 0.0} == {
        "residual": 0.25,
        "ridge": 0.5,
        "jitter": 0.0,
        "scale": 3.0,
        "seconds": 0.0,
        "bytes": 8.0,
        "iterations": 2.0,
    }
    with pytest.raises(SingularKernelError, match="are all inputs zero"):
        ShiftedGram.of(DenseGram(torch.zeros(2, 2)), 0.5, None)
