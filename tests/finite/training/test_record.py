from __future__ import annotations

import pytest

from ntkit import Checkpoint, Record, Schedule
from ntkit.errors import InputError, InputTypeError

DESCENT, FLOW = Schedule(learning_rate=0.1, steps=8), Schedule("flow", time=3.0)


def test_moments_are_in_order_and_begin_at_the_start():
    assert Record([5, 2, 5]).moments(DESCENT) == (0.0, 2.0, 5.0)
    assert Record([0.5, 3.0]).moments(FLOW) == (0.0, 0.5, 3.0)
    assert Record().moments(FLOW) == (0.0,)


def test_observes_all_records_or_those_named():
    assert Record([2]).observes(2) and Record([2]).observes(0)
    named = Record([2, 4], observe_at=[4])
    assert named.observes(4) and not named.observes(2)
    assert Record([2], observe_at=[8]).moments(DESCENT)  # the end is a record


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Record([9]).moments(DESCENT), InputError, "between 0 and the end, 8"),
        (lambda: Record([-1]).moments(DESCENT), InputError, "at least 0"),
        (lambda: Record([0.5]).moments(DESCENT), InputError, "whole numbers"),
        (lambda: Record(["1"]).moments(DESCENT), InputTypeError, "number"),
        (lambda: Record([1], observe_at=[2]).moments(DESCENT), InputError, "recorded"),
        (lambda: Checkpoint(print, every=0), InputError, "at least 1"),
        (lambda: Checkpoint("file"), InputTypeError, "function"),
    ],
)
def test_bad_records_are_explained(make, error, message):
    with pytest.raises(error, match=message):
        make()
