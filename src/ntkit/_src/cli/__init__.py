"""The command line: ``ntkit fit``, ``predict``, ``evaluate``, ``explain``, ``doctor``, ``gram``, ``solve``, ``run`` and more."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from ._terminal import stopping_at_once

_INTERRUPTED = 130


def main() -> None:
    """Run the program ``ntkit``: results on the standard output, everything else on the standard error stream.

    The exit status is 0, 1 if ``ntkit doctor`` finds a module without a limit, 2 for a request that cannot be carried
    out, 130 if it is interrupted, by Ctrl-C or by the signal SIGTERM.
    """
    signal.signal(signal.SIGTERM, _stop)
    try:
        try:
            with stopping_at_once():
                from ._app import app
        except ImportError as error:
            sys.exit(f"ntkit: the command line needs typer: pip install 'ntkit[cli]' ({error})")
        app(prog_name="ntkit")
        return
    except KeyboardInterrupt:
        print("ntkit: stopped", file=sys.stderr)
    except SystemExit as end:
        if end.code != _INTERRUPTED:
            raise
    # Threads that compute and libraries that clean up would hold up the end, and show tracebacks at a second Ctrl-C.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


def _stop(number: int, frame: FrameType | None) -> None:
    """Stop as Ctrl-C does, so that files half-written are removed."""
    raise KeyboardInterrupt
