from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

import ntkit
from ntkit._src.cli._terminal import stopping_at_once

PROGRAM = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.{number})

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start tests in the background, where it is ignored
sys.meta_path.insert(0, Interrupt())
sys.argv = ["ntkit", "doctor", "--help"]
from ntkit.__main__ import main
main()
"""


def run(module: str, number: str) -> tuple[int, str]:
    code = PROGRAM.format(module=module, number=number)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("module", "number"),
    [("torch", "SIGINT"), ("torch", "SIGTERM"), ("typer", "SIGINT")],
)
def test_an_interruption_while_modules_are_imported_shows_no_traceback(module, number):
    """The command line imports typer; its commands, later, torch."""
    assert run(module, number) == (130, "ntkit: stopped\n")


@pytest.mark.parametrize(("handler", "changes"), [(signal.SIG_IGN, 0), (None, 0), (signal.SIG_DFL, 2)])
def test_a_signal_that_is_ignored_stays_ignored(handler, changes, monkeypatch: pytest.MonkeyPatch):
    """As in a program that a shell runs in the background; any other gets its handler back before the command runs."""
    calls: list[tuple[int, Any]] = []
    monkeypatch.setattr(signal, "getsignal", lambda _: handler)
    monkeypatch.setattr(signal, "signal", lambda number, new: calls.append((number, new)))
    with stopping_at_once():
        calls.append((0, "ran"))
    assert [number for number, _ in calls].index(0) == changes
    assert [new for _, new in calls[changes + 1 :]] == [handler] * changes


def imported(*arguments: str, code: str = "") -> tuple[str, set[str]]:
    """Run the program in a process of its own; give what it printed, and the packages that it imported."""
    program = f"""
import atexit, sys
sys.argv = ["ntkit", *{arguments!r}]
atexit.register(lambda: print("\\nIMPORTED", *sys.modules))
from ntkit.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code or program], capture_output=True, text=True, check=False)
    text, _, modules = done.stdout.partition("\nIMPORTED")
    assert modules, done.stderr
    return text, set(modules.split())


def test_the_version_needs_no_import():
    text, modules = imported("--version")
    assert text == f"ntkit {ntkit.__version__}\n"
    assert not modules & {"torch", "numpy", "typer", "ntkit._src"}


@pytest.mark.parametrize("arguments", [("--help",), ("fitt",), ()])
def test_the_list_of_commands_needs_no_command(arguments):
    _, modules = imported(*arguments)
    assert "typer" in modules and not modules & {"torch", "numpy", "pandas", "rich", "ntkit._src.common"}


def test_a_command_imports_no_other():
    _, modules = imported("explain", "--help")
    mine = {name.rpartition(".")[2] for name in modules if name.startswith("ntkit._src.cli.")}
    assert "_networks" in mine and not mine & {"_fit", "_predict", "_evaluate", "_kernels", "_data"}
