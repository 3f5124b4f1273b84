from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})

sys.meta_path.insert(0, Interrupt())
sys.argv = ["ntkit", "--version"]
{before}
import ntkit_command
ntkit_command.main()
"""


def run(module: str, number: str, before: str = "") -> tuple[int, str]:
    code = PROGRAM.format(module=module, number=number, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=100)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("module", "number"), [("torch", "SIGINT"), ("torch", "SIGTERM"), ("typer", "SIGINT")])
def test_an_interruption_while_modules_are_imported_shows_no_traceback(module, number):
    """The package imports torch; its command line, later, typer."""
    assert run(module, number) == (130, "ntkit: stopped\n")


def test_a_signal_that_is_ignored_stays_ignored():
    """As in a program that a shell runs in the background."""
    assert run("torch", "SIGINT", "signal.signal(signal.SIGINT, signal.SIG_IGN)") == (0, "")
