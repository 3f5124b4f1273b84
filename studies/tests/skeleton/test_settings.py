from __future__ import annotations

import argparse

import pytest
from studies.tests.skeleton.toy import Settings

from ntkit.errors import InputError
from ntkit_studies.skeleton._settings import add_options, changed, read_toml, settings_rows


def chosen(*arguments):
    parser = argparse.ArgumentParser()
    add_options(parser, Settings)
    return vars(parser.parse_args(arguments)), parser


def test_options_follow_the_fields():
    values, _ = chosen("--widths", "4", "5", "--factor", "0.5", "--head", "cap", "--pair", "1", "2")
    assert changed(Settings(), values) == Settings((4, 5), 0.5, "cap", (1, 2))
    assert changed(Settings(), chosen()[0]) == Settings()


def test_help_is_the_docstring():
    text = " ".join(chosen()[1].format_help().split())
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
