"""The program ``ntkit``, outside the package: an interruption while that is imported, which takes seconds, shows no traceback."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Import the command line and run it: see ``ntkit.cli.main``."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _stop)
    from ntkit.cli import main as run

    for number, handler in before.items():
        signal.signal(number, handler)
    run()


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: an exception might be caught by what is being imported."""
    os.write(2, b"ntkit: stopped\n")
    os._exit(130)
