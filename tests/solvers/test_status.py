from __future__ import annotations

import copy
import pickle

import pytest

from ntkit._src.solvers import Outcome
from ntkit._src.solvers._status import Status


@pytest.mark.parametrize("outcome", Outcome)
def test_a_sentence_with_its_outcome(outcome: Outcome) -> None:
    status = Status(outcome, "All is well.")
    assert status == "All is well." and str(status) == "All is well."
    assert type(str(status)) is str
    assert status.outcome is outcome
    assert status.converged is (outcome is not Outcome.NOT_CONVERGED)
    for again in (pickle.loads(pickle.dumps(status)), copy.deepcopy(status)):
        assert again == status and again.outcome is outcome
