"""Progress bars, and errors as one line."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["one_line", "progress_bars"]


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
