from __future__ import annotations

import pytest

from ntkit_studies import _flow_estimate as estimates
from ntkit_studies._deep_networks import myrtle


def test_entries_and_flows_of_every_part_are_added(monkeypatch):
    """A millisecond for an entry at up to 32 pixels, n^2 microseconds for a flow."""
    measured = []

    def entry_seconds(kernel, shape):
        measured.append(shape)
        return 1e-3

    monkeypatch.setattr(estimates, "entry_seconds", entry_seconds)
    monkeypatch.setattr(estimates, "fitted_seconds", lambda *_: lambda n: 1e-6 * n**2)
    parts = [
        estimates.Part("NTK", 2, 64, (10, 20), 3),
        estimates.Part("empirical NTK", 2, 64, (10,), 1),
        estimates.Part("NTK", 10, 64, (20,), 1),
    ]
    found = estimates.flow_estimate(parts, 5, 3, 1e4, myrtle, "fewer images")
    assert measured == [(3, 32, 32)] * 2  # each kernel once, at no more than 32 pixels
    entries = 4 * 16 * (210 + 100) + 4 * (55 + 50)
    assert found.seconds == pytest.approx(1e-3 * entries + 1e-6 * (3 * (100 + 400) + 100 + 400))
    assert found.bytes == 8 * 20 * (4 * 20 + 5) and found.change == "fewer images"


def test_flows_run_with_two_and_more_classes():
    for classes in (2, 3):
        estimates._Flow(classes, 10.0)(6)
