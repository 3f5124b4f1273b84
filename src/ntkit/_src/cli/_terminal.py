"""Progress bars, errors as one line, and Ctrl-C during imports."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def one_line(error: BaseException) -> str:
    """Return the message of an error as sentences on one line."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full: make room, or write to another."
    # A line that ends without a full stop gets one.
    text = re.sub(r"(?<=[^\s.:,;])\s*\n\s*(?=[A-Z])", ". ", str(error))
    return " ".join(text.split()) or type(error).__name__


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each computation, on the standard error stream."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.percentage:>3.0f}%"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    bars = progress.Progress(*columns, console=Console(stderr=True))
    tasks: dict[str, progress.TaskID] = {}

    def report(what: str, done: int, total: int) -> None:
        if not tasks:  # no empty line where nothing is computed
            bars.start()
        if what not in tasks:
            # What was done before this run says nothing about its speed.
            tasks[what] = bars.add_task(what, total=total, completed=done)
        bars.update(tasks[what], completed=done)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the program without a traceback: what is being imported might catch an exception."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    # Who starts a program in the background may have it ignore signals; None is a handler that Python did not set.
    before = {number: old for number in numbers if (old := signal.getsignal(number)) not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"ntkit: stopped\n")
    os._exit(130)
