"""The registry of matchers: which modules, functions and methods are understood, and by which function.

A matcher is written once, in the form of the functional call: ``matcher(builder, x, ...)``. A module is turned into that
call by a function of the module and its path that gives the remaining arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

__all__ = ["KnownModule", "Matcher", "find", "find_module", "matches", "supported_layers"]

ModuleArguments = Callable[[Any, str], Mapping[str, Any]]


@dataclass(frozen=True)
class Matcher:
    """How one family of operations is understood.

    Attributes
    ----------
    build
        The matcher itself.
    fresh
        Whether it brings weights of its own, so that it makes a random field even of raw data.
    refuses
        Whether it only says why there is no limit.
    family, note
        Its row in the table of supported layers.
    names
        What users call it.
    """

    build: Callable[..., Any]
    fresh: bool
    refuses: bool
    family: str
    note: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class KnownModule:
    """A module class, its matcher, and what turns a module into the matcher's arguments."""

    kind: type[nn.Module]
    matcher: Matcher
    arguments: ModuleArguments


_MODULES: dict[type[nn.Module], KnownModule] = {}
_FUNCTIONS: dict[object, Matcher] = {}
_ROWS: list[Matcher] = []


def matches(
    *functions: object,
    modules: Mapping[type[nn.Module], ModuleArguments] | None = None,
    family: str = "",
    note: str = "",
    fresh: bool = False,
    refuses: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a matcher for functions (given as objects), methods and aten operators (as names) and module classes."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        names = [kind.__name__ for kind in modules or {}]
        names += [f"`{getattr(f, '__name__', f)}`" for f in functions if isinstance(f, str) or not modules]
        matcher = Matcher(build, fresh, refuses, family, note, tuple(dict.fromkeys(names)))
        for function in functions:
            _FUNCTIONS[function] = matcher
        for kind, arguments in (modules or {}).items():
            _MODULES[kind] = KnownModule(kind, matcher, arguments)
        if family:
            _ROWS.append(matcher)
        return build

    return register


def find(target: object) -> Matcher | None:
    """Find the matcher of a function, or of a method or aten operator by name."""
    try:
        return _FUNCTIONS.get(target)
    except TypeError:  # an unhashable callable
        return None


def find_module(module: nn.Module) -> KnownModule | None:
    """Find the matcher of a module by its class or the nearest registered ancestor."""
    for kind in type(module).__mro__:
        if kind in _MODULES:
            return _MODULES[kind]
    return None


def supported_layers() -> str:
    """Give the table of supported layers in Markdown, as the README shows it."""
    rows = ["| family | layers and functions | note |", "|---|---|---|"]
    families: dict[str, tuple[list[str], list[str]]] = {}
    for matcher in _ROWS:
        names, notes = families.setdefault(matcher.family, ([], []))
        names.extend(name for name in matcher.names if name not in names)
        if matcher.note and matcher.note not in notes:
            notes.append(matcher.note)
    rows += [f"| {family} | {', '.join(names)} | {'; '.join(notes)} |" for family, (names, notes) in families.items()]
    return "\n".join(rows)
