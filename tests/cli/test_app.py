from __future__ import annotations

import runpy
import signal
import sys

import pytest

import ntkit
from ntkit.cli._app import _one_line

COMMANDS = [
    "fit", "predict", "evaluate", "explain", "doctor", "gram", "solve", "posterior", "attribute", "list", "run", "report",
    "fetch",
]  # fmt: skip


def test_the_help_names_every_command(program):
    text = program("--help")
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert "..." not in text.split("Commands:")[1], "a short help is cut off"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "run"])
def test_every_command_has_help_with_an_example(name, program):
    assert f"Examples:\n    ntkit {name} " in program(name, "--help")


def test_version(program):
    assert program("--version") == f"ntkit {ntkit.__version__}\n"


def test_unknown_commands_and_options(program):
    program("fitt", status=2)
    program("fit", "a.csv", status=2)
    assert "--target" in program.err


def test_a_request_that_is_too_large(program, net, monkeypatch: pytest.MonkeyPatch):
    assert "must be positive whole numbers" in program.fails("explain", net, "--shape", f"{10**30}")

    def allocate(*_: object) -> None:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] you tried to allocate 160000000000 bytes. Error code 12"
        )

    monkeypatch.setattr("ntkit.cli._explain.infinite_width", allocate)
    assert program.fails("explain", net, "--shape", "2") == "not enough memory: tried to allocate 160000000000 bytes."


def test_lines_of_an_error_become_sentences():
    assert (
        _one_line(ValueError("a:\n  one, two\nNothing was changed.\nGo on"))
        == "a: one, two. Nothing was changed. Go on"
    )


def test_completion_and_module_form(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    words = {"_NTKIT_COMPLETE": "complete_bash", "COMP_WORDS": "ntkit ex", "COMP_CWORD": "1"}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["ntkit"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as end:
        runpy.run_module("ntkit.cli", run_name="__main__", alter_sys=True)
    assert end.value.code == 0
    assert capsys.readouterr().out.split() == ["explain"]
