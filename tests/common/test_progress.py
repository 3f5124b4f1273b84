from __future__ import annotations

from ntkit._src.common import shifted_progress


def test_part_of_a_larger_task() -> None:
    calls: list[tuple[int, int]] = []
    report = shifted_progress(lambda done, total: calls.append((done, total)), 10, 30)
    report(1)
    report(20)
    assert calls == [(11, 30), (30, 30)]
    shifted_progress(None, 10, 30)(5)  # nobody listens
