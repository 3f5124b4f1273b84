"""Settings as command-line options and as TOML files; their docstrings are the help."""

from __future__ import annotations

import argparse
import re
import tomllib
import types
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ntkit.errors import InputError

from ._records import decode, encode

__all__ = ["add_options", "changed", "check_at_least", "read_toml", "settings_rows"]

S = TypeVar("S")


def add_options(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add an option for every field that a command line can hold: numbers, words, and several of them."""
    hints, texts = get_type_hints(kind), _descriptions(kind)
    for field in fields(kind):
        how = _how(hints[field.name])
        if how is not None:
            names = [f"--{field.name.replace('_', '-')}", *field.metadata.get("also", ())]
            text = texts.get(field.name, "").replace("%", "%%")
            parser.add_argument(*names, dest=field.name, help=text, **how)


def changed(base: S, chosen: Mapping[str, Any]) -> S:
    """Return settings with the values of the command line."""
    names = [field.name for field in fields(base)]  # type: ignore[arg-type]
    given = {name: chosen[name] for name in names if chosen.get(name) is not None}
    return replace(base, **{name: tuple(v) if isinstance(v, list) else v for name, v in given.items()})  # type: ignore[type-var]


def read_toml(base: S, path: Path) -> S:
    """Return settings with the values of a TOML file.

    Raises
    ------
    InputError
        If the file cannot be read, names no setting of the experiment, or has a value of another type.
    """
    hints = get_type_hints(type(base))
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"--settings must be a TOML file. Cannot read {path}: {error}") from error
    names = [field.name for field in fields(base)]  # type: ignore[arg-type]
    unknown = [name for name in content if name not in names]
    if unknown:
        raise InputError(f"{path} must set some of {', '.join(names)}. Got {', '.join(unknown)}.")
    found = {}
    for name, value in content.items():
        try:
            found[name] = decode(hints[name], value)
        except ValueError as error:
            raise InputError(f"{path}: {name}: {error}") from error
    return replace(base, **found)  # type: ignore[type-var]


def check_at_least(settings: object, least: int, *names: str) -> None:
    """Refuse settings with a number, or one of several, that is too small."""
    for name in names:
        value = getattr(settings, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or min(numbers) < least:
            raise InputError(f"{name} must be at least {least}. Got {value}.")


def settings_rows(settings: object) -> list[tuple[str, str]]:
    """Return names and values, as text."""
    rows = []
    for name, value in encode(settings).items():
        rows.append((name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)))
    return rows


def _how(hint: Any) -> dict[str, Any] | None:
    """Return how argparse reads a type, or None if a command line cannot hold it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if part is not types.NoneType]
        return _how(kinds[0]) if len(kinds) == 1 else None
    if origin is Literal:
        return {"choices": list(parts), "type": type(parts[0])}
    if hint in (int, float, str):
        return {"type": hint, "metavar": hint.__name__.upper()}
    if origin is tuple and parts[0] in (int, float, str):
        several = len(parts) == 2 and parts[1] is Ellipsis
        return {"type": parts[0], "nargs": "+" if several else len(parts), "metavar": parts[0].__name__.upper()}
    return None


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """Read the Attributes section of a docstring: a line of names, and indented under it what they mean."""
    _, _, section = (kind.__doc__ or "").partition("Attributes\n")
    found = {}
    for names, text in re.findall(r"^    (\w[\w, ]*)\n((?:        .+\n?|\n)+)", section, re.MULTILINE):
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split())
    return found
