from __future__ import annotations

import pytest
import torch

from ntkit import Schedule
from ntkit.errors import InputError, InputTypeError


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"learning_rate": None}, InputError, "needs learning_rate"),
        ({"learning_rate": 0.0}, InputError, "positive"),
        ({"learning_rate": "0.1"}, InputTypeError, "number"),
        ({"steps": -1}, InputError, "at least 0"),
        ({"steps": 2.5}, InputTypeError, "integer"),
        ({"time": 1.0}, InputError, "left out"),
        ({"method": "newton"}, InputError, "'flow'"),
        ({"method": "sgd", "batch_size": 2}, InputError, "needs generator"),
        ({"method": "sgd", "generator": torch.Generator()}, InputError, "needs batch_size"),
        ({"method": "sgd", "generator": torch.Generator(), "batch_size": 0}, InputError, "at least 1"),
        ({"method": "momentum"}, InputError, "needs momentum"),
        ({"method": "momentum", "momentum": 1.0}, InputError, "below 1"),
        ({"method": "flow"}, InputError, "left out"),
        ({"rtol": 0.0}, InputError, "positive"),
        ({"atol": -1.0}, InputError, "at least 0"),
    ],
)
def test_bad_settings_are_explained(changes, error, message):
    with pytest.raises(error) as caught:
        Schedule(**{"learning_rate": 0.1, "steps": 3, **changes})
    assert message in str(caught.value)


def test_end_and_what_a_resumed_run_must_share():
    flow, descent = Schedule("flow", time=2.5), Schedule(learning_rate=0.1, steps=7)
    assert (flow.end, flow.is_flow, descent.end, descent.is_flow) == (2.5, True, 7.0, False)
    assert Schedule(learning_rate=0.1, steps=9).shared() == descent.shared()
    assert Schedule(learning_rate=0.2, steps=7).shared() != descent.shared()
