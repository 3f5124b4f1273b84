from __future__ import annotations

import runpy
import signal
import sys
from typing import Any

import pytest

import ntkit
from ntkit._src.cli import main
from ntkit._src.cli._app import COMMANDS, load


def test_the_help_names_every_command(program):
    text = program("--help")
    for name in COMMANDS:
        assert f"\n  {name} " in text
    assert "..." not in text.split("Commands:")[1], "a short help is cut off"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "run"])
def test_every_command_has_help_with_an_example(name, program):
    assert f"Examples:\n    ntkit {name} " in program(name, "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_the_first_line_of_each_help(name):
    assert load(name).name == name
    assert load(name).get_short_help_str(200).rstrip(".") == COMMANDS[name].rstrip(".")


def test_a_command_without_the_packages_it_needs(program, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "ntkit._src.cli._predict", raising=False)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert program.fails("predict", "a", "b") == "ntkit predict needs pandas: pip install 'ntkit[cli]'"


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

    monkeypatch.setattr("ntkit._src.cli._networks.infinite_width", allocate)
    assert program.fails("explain", net, "--shape", "2") == "not enough memory: tried to allocate 160000000000 bytes."


@pytest.mark.parametrize(
    ("words", "found"),
    [("ntkit ex", "explain"), ("ntkit fit --ta", "--target --task"), ("ntkit run dyn", "dynamics_1d")],
)
def test_completion_and_module_form(words, found, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    setting = {"_NTKIT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["ntkit"])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.delitem(sys.modules, "ntkit.__main__", raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as end:
        runpy.run_module("ntkit", run_name="__main__", alter_sys=True)
    assert end.value.code == 0
    assert capsys.readouterr().out.split() == found.split()


@pytest.mark.parametrize("error", [SystemExit(130), KeyboardInterrupt()])
def test_an_interruption_ends_at_once(error, monkeypatch: pytest.MonkeyPatch):
    """Even with threads that still compute."""
    handlers: dict[int, Any] = {}

    def stop(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("ntkit._src.cli._app.app", stop)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "getsignal", handlers.get)
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    main()
    assert ended == [130]
    with pytest.raises(KeyboardInterrupt):
        handlers[signal.SIGTERM](signal.SIGTERM, None)
