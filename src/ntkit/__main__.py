"""The program ``ntkit``, also ``python -m ntkit``: Ctrl-C shows no traceback while torch is imported, which takes seconds."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]


def main() -> None:
    """Import the command line and run it: see ``ntkit._src.cli.main``."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    # Who starts a program in the background may have it ignore signals; None is a handler that Python did not set.
    before = {number: old for number in numbers if (old := signal.getsignal(number)) not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, _stop)
    from ntkit._src.cli import main as run

    for number, old in before.items():
        signal.signal(number, old)
    run()


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: an exception might be caught by what is being imported."""
    os.write(2, b"ntkit: stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
