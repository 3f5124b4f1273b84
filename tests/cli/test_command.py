from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from ntkit.__main__ import main

PROGRAM = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start tests in the background, where it is ignored
sys.meta_path.insert(0, Interrupt())
sys.argv = ["ntkit", "--version"]
from ntkit.__main__ import main
main()
"""


def run(module: str, number: str) -> tuple[int, str]:
    code = PROGRAM.format(module=module, number=number)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "number"),
    [("torch", "SIGINT"), ("torch", "SIGTERM"), pytest.param("typer", "SIGINT", marks=pytest.mark.slow)],
)
def test_an_interruption_while_modules_are_imported_shows_no_traceback(module, number):
    """The package imports torch; its command line, later, typer."""
    assert run(module, number) == (130, "ntkit: stopped\n")


@pytest.mark.parametrize(("handler", "changes"), [(signal.SIG_IGN, 0), (None, 0), (signal.SIG_DFL, 2)])
def test_a_signal_that_is_ignored_stays_ignored(handler, changes, monkeypatch: pytest.MonkeyPatch):
    """As in a program that a shell runs in the background; any other gets its handler back before the command runs."""
    calls: list[tuple[int, Any]] = []
    monkeypatch.setattr(signal, "getsignal", lambda _: handler)
    monkeypatch.setattr(signal, "signal", lambda number, new: calls.append((number, new)))
    monkeypatch.setattr("ntkit._src.cli.main", lambda: calls.append((0, "ran")))
    main()
    assert len(calls) == 2 * changes + 1 and calls[-1] == (0, "ran")
    assert [new for _, new in calls[changes:-1]] == [handler] * changes
