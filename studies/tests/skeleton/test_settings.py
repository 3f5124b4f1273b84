from __future__ import annotations

from inspect import Signature
from typing import Any

import pytest
import typer
from studies.tests.skeleton.toy import Settings

from ntkit.errors import InputError
from ntkit_studies.skeleton._settings import changed, options_of, read_toml, repeated, settings_rows


def chosen(*arguments):
    """Read arguments as a program would."""
    found: dict[str, Any] = {}

    def command(**values):
        found.update(values)

    parameters = options_of(Settings)
    command.__signature__ = Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(command)
    app(repeated(arguments, Settings), standalone_mode=False)
    return found


def test_options_follow_the_fields():
    values = chosen("--widths", "4", "5", "--factor", "0.5", "--head", "cap", "--pair", "1", "2")
    assert changed(Settings(), values) == Settings((4, 5), 0.5, "cap", (1, 2))
    assert changed(Settings(), chosen()) == Settings()


def test_help_is_the_docstring(capsys):
    chosen("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "Of the boxes, in 100 % of cases." in text
    assert text.count("What to multiply with, and what to wear.") == 2


def test_a_toml_file(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text('widths = [7]\nfactor = 3\nhead = "cap"\npair = [1, 2]\n')
    assert read_toml(Settings(), path) == Settings((7,), 3.0, "cap", (1, 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("width = 3\n", "must set some of widths, factor, head, pair. Got width"),
        ("factor = 'x'\n", "factor: expected float"),
        ("pair = [1]\n", "pair: expected"),
        ("widths = [0]\n", "widths must be at least 1"),
        ("widths\n", "must be a TOML file"),
        (None, "must be a TOML file"),
    ],
)
def test_a_bad_toml_file_is_explained(tmp_path, text, message):
    path = tmp_path / "a.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_toml(Settings(), path)


def test_rows():
    assert settings_rows(Settings(pair=(1, 2))) == [
        ("widths", "1, 2, 3"), ("factor", "2.0"), ("head", "hat"), ("pair", "1, 2"),
    ]  # fmt: skip
