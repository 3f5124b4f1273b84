"""How long a run will take and how much memory it needs, said before it starts; what cannot fit is refused."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ntkit.errors import MemoryLimitError

if TYPE_CHECKING:
    from ._experiment import Experiment
    from ._run import Run

__all__ = ["Estimate", "announce", "duration", "fitted_seconds", "line_through", "machine_bytes"]

_LONG = 24 * 3600.0
_TELLS = 1.0  # seconds of a call beside which imports are little
_YEAR = 365.25 * 24 * 3600
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True)
class Estimate:
    """What a run needs.

    Attributes
    ----------
    seconds
        Of all cells on this machine.
    bytes
        Of memory at the same time, at most.
    basis
        How both were found, in a sentence.
    change
        What to change for a smaller run, such as ``"fewer training images (--train)"``.
    """

    seconds: float
    bytes: float
    basis: str
    change: str


def announce(experiment: Experiment[Any, Any, Any, Any], run: Run[Any]) -> None:
    """Say what a run needs, on the standard error stream, if its experiment can tell.

    Raises
    ------
    MemoryLimitError
        If it needs more memory than the machine has.
    """
    if experiment.estimate is None:
        return
    found, memory = experiment.estimate(run), machine_bytes()
    has = "" if memory is None else f", of which this machine has {_bytes_text(memory)}"
    text = (
        f"At the speed of this moment the run takes about {_in_words(found.seconds)}, and {_bytes_text(found.bytes)} of "
        f"memory{has}. {found.basis}"
    )
    if found.seconds > _LONG:
        text += f" For less time: {found.change}."
    print(f"{text} An interrupted run resumes.", file=sys.stderr)
    if memory is not None and found.bytes > memory:
        raise MemoryLimitError(
            f"{experiment.name} with these settings needs about {_bytes_text(found.bytes)} of memory, and this machine has "
            f"{_bytes_text(memory)}. Run it with {found.change}, or on a larger machine."
        )


def machine_bytes() -> int | None:
    """Return the memory of the machine or, if that is less, of the container; None if the system does not say."""
    known = []
    with suppress(AttributeError, OSError, ValueError):  # systems without these names
        known.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _LIMITS:
        try:
            known.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such group, or no limit ("max")
            continue
    return min(known, default=None)


def duration(call: Callable[[], object]) -> float:
    """Return the seconds of a call. A short one is called twice, since the first may pay for plans and imports."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        if seconds[0] > _TELLS:
            break
    return min(seconds)


def fitted_seconds(trial: Callable[[int], object], small: int, power: float) -> Callable[[int], float]:
    """Return the seconds of ``trial(n)`` as a function of n, fitted to those of ``trial(small)`` and ``trial(2 * small)``.

    Parameters
    ----------
    trial
        Does the work of size n.
    small
        A size that takes a fraction of a second.
    power
        With which the work grows; what does not grow is told apart by the two measurements.
    """
    first = duration(lambda: trial(small))
    start = time.perf_counter()
    trial(2 * small)
    return line_through(first, time.perf_counter() - start, small, power)


def line_through(first: float, second: float, small: int, power: float) -> Callable[[int], float]:
    """Return a + b n^power through the seconds at ``small`` and at twice that; noise may leave no a, but never no b.

    Examples
    --------
    >>> line_through(3.0, 9.0, 1, 2)(10)
    201.0
    """
    ends = float(small) ** power, float(2 * small) ** power
    growth = (second - first) / (ends[1] - ends[0])
    fixed = second - growth * ends[1]
    if growth <= 0 or fixed < 0:
        growth, fixed = second / ends[1], 0.0
    return lambda n: fixed + growth * float(n) ** power


def _in_words(seconds: float) -> str:
    if seconds > 2 * _YEAR:
        return f"{seconds / _YEAR:.2g} years"
    units = {"days": 86400.0, "h": 3600.0, "min": 60.0, "s": 0.0}
    unit = next(unit for unit, size in units.items() if seconds >= (2 if unit == "days" else 1) * size)
    return f"{seconds / (units[unit] or 1):.1f} {unit}"


def _bytes_text(count: float) -> str:
    unit, size = next((pair for pair in (("GB", 1e9), ("MB", 1e6)) if count >= pair[1]), ("bytes", 1))
    return f"{count / size:.1f} {unit}" if size > 1 else f"{count:.0f} bytes"
