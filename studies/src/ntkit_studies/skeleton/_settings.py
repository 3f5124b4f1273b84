"""Settings as command-line options and as TOML files; their docstrings are the help."""

from __future__ import annotations

import inspect
import re
import tomllib
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer

from ntkit.errors import InputError

from ._records import decode, encode

__all__ = ["changed", "check_at_least", "option", "options_of", "read_toml", "repeated", "settings_rows"]

S = TypeVar("S")


def option(name: str, kind: Any, default: Any, text: str, *also: str, **how: Any) -> inspect.Parameter:
    """Return an option as a parameter of a command's function; ``also`` are further names on the command line."""
    flags = (f"--{name.replace('_', '-')}", *also)
    annotation = Annotated[kind, typer.Option(*flags, help=text, show_default=False, **how)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def options_of(kind: type[Any]) -> list[inspect.Parameter]:
    """Return an option for every field that a command line can hold: numbers, words, and several of them."""
    hints, texts = get_type_hints(kind), _descriptions(kind)
    found = []
    for field in fields(kind):
        read = _read_as(hints[field.name])
        if read is not None:
            how = {} if get_origin(read) is Literal else {"metavar": _metavar(read)}
            text, also = texts.get(field.name, ""), field.metadata.get("also", ())
            found.append(option(field.name, read | None, None, text, *also, **how))
    return found


def repeated(arguments: Sequence[str], kind: type[Any]) -> list[str]:
    """Write ``--widths 4 8`` as ``--widths 4 --widths 8``, the form in which typer reads several values of an option.

    Examples
    --------
    >>> from dataclasses import make_dataclass
    >>> repeated(["--n", "4", "-8", "--seed", "1"], make_dataclass("Settings", [("n", tuple[int, ...])]))
    ['--n', '4', '--n', '-8', '--seed', '1']
    """
    hints = get_type_hints(kind)
    lists = [field for field in fields(kind) if get_origin(_read_as(hints[field.name])) is list]
    flags = {flag for field in lists for flag in (f"--{field.name.replace('_', '-')}", *field.metadata.get("also", ()))}
    found: list[str] = []
    current, first = "", False
    for one in arguments:
        if one.startswith("-") and not re.match(r"-\.?\d", one):
            current, first = (one if one in flags else ""), True
        elif current:
            found += [] if first else [current]
            first = False
        found.append(one)
    return found


def changed(base: S, chosen: Mapping[str, Any]) -> S:
    """Return settings with the values of the command line."""
    names = [field.name for field in fields(base)]  # type: ignore[arg-type]
    given = {name: chosen[name] for name in names if chosen.get(name) not in (None, [])}
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


def _read_as(hint: Any) -> Any:
    """Return the type by which typer reads a field, or None if a command line cannot hold it."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        kinds = [part for part in parts if part is not types.NoneType]
        return _read_as(kinds[0]) if len(kinds) == 1 else None
    if origin is tuple and parts[0] in (int, float, str):
        return list[parts[0]] if parts[1:] == (Ellipsis,) else hint  # type: ignore[valid-type]
    return hint if origin is Literal or hint in (int, float, str) else None


def _metavar(read: Any) -> str:
    """Return what the help shows for a value: ``INT``, or ``INT INT`` for two, or ``INT...`` for several."""
    if get_origin(read) is list:
        return f"{get_args(read)[0].__name__.upper()}..."
    return " ".join(part.__name__.upper() for part in get_args(read) or (read,))


def _descriptions(kind: type[Any]) -> dict[str, str]:
    """Read the Attributes section of a docstring: a line of names, and indented under it what they mean."""
    _, _, section = (kind.__doc__ or "").partition("Attributes\n")
    found = {}
    for names, text in re.findall(r"^    (\w[\w, ]*)\n((?:        .+\n?|\n)+)", section, re.MULTILINE):
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split())
    return found
