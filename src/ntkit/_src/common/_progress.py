"""Progress callbacks: the library computes and reports, the caller prints."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Progress", "part_of", "shifted_progress"]

Progress = Callable[[int, int], None]
"""Called with the number of work units done and their total."""


def part_of(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """Return the callback for part ``number`` (from 0) of several parts with equally many units.

    Examples
    --------
    >>> part_of(lambda done, total: print(done, "of", total), 1, 3)(5, 10)
    15 of 30
    """
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, parts * total)


def shifted_progress(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    """Return the callback for one part of a larger task, of which ``before`` of ``total`` units are done when it starts."""
    if progress is None:
        return lambda done: None
    return lambda done: progress(before + done, total)
