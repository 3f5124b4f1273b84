"""The registry of matchers: which modules, functions and methods are supported, and by which function.

A matcher is written once, in the form of the functional call: ``matcher(builder, x, ...)``. A module is turned into that
call by the names of the attributes that are the remaining arguments, or by a function of the module and its path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from torch import nn

ModuleArguments = Callable[[Any, str], Mapping[str, Any]]
Build = TypeVar("Build", bound=Callable[..., Any])


@dataclass(frozen=True)
class Matcher:
    """The matcher of one family of operations."""

    build: Callable[..., Any]
    fresh: bool  # has its own weights, so that it turns even raw data into a random field
    refuses: bool  # only explains why there is no limit
    family: str
    note: str  # its row in the table of supported layers
    modules: tuple[str, ...]  # names that users know
    functions: tuple[str, ...]


@dataclass(frozen=True)
class KnownModule:
    """A module class, its matcher, and the function that turns a module into the matcher's arguments."""

    kind: type[nn.Module]
    matcher: Matcher
    arguments: ModuleArguments


_FAMILIES = (
    "linear",
    "convolution",
    "recurrent",
    "pooling",
    "up-sampling",
    "position maps",
    "normalisation",
    "attention",
    "tokens",
    "activation, closed form",
    "activation, by quadrature",
    "arithmetic",
    "shape",
    "no operation",
)
_MODULES: dict[type[nn.Module], KnownModule] = {}
_FUNCTIONS: dict[object, Matcher] = {}
_ROWS: list[Matcher] = []


def matches(
    *functions: object,
    modules: Mapping[type[nn.Module], ModuleArguments | Sequence[str]] | None = None,
    family: str = "",
    note: str = "",
    fresh: bool = False,
    refuses: bool = False,
) -> Callable[[Build], Build]:
    """Register a matcher for functions (given as objects), methods and aten operators (as names) and module classes."""

    def register(build: Build) -> Build:
        names = {str(getattr(function, "__name__", function)) for function in functions}
        # In-place forms and the exporter's operators are supported but not listed.
        shown = sorted(name for name in names if not name.endswith("_") and not name.startswith(("_", "special_")))
        kinds = tuple(kind.__name__ for kind in modules or {})
        matcher = Matcher(build, fresh, refuses, family, note, kinds, tuple(shown))
        for function in functions:
            _FUNCTIONS[function] = matcher
        for kind, arguments in (modules or {}).items():
            read = arguments if callable(arguments) else partial(_attributes, tuple(arguments))
            _MODULES[kind] = KnownModule(kind, matcher, read)
        if family:
            _ROWS.append(matcher)
        return build

    return register


def _attributes(names: Sequence[str], module: nn.Module, path: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names}


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
    """Return the table of supported layers in Markdown, as the site shows it.

    Examples
    --------
    >>> import ntkit
    >>> print(ntkit.supported_layers().splitlines()[2])
    | linear | `Linear` | `linear` | on vectors and at every position of (n, positions..., features) |
    """
    rows = ["| family | modules | functions and methods | note |", "|---|---|---|---|"]
    for family in sorted({matcher.family for matcher in _ROWS}, key=_FAMILIES.index):
        members = [matcher for matcher in _ROWS if matcher.family == family]
        modules, functions = (
            ", ".join(dict.fromkeys(f"`{name}`" for names in column for name in names))
            for column in ([m.modules for m in members], [m.functions for m in members])
        )
        notes = "; ".join(dict.fromkeys(matcher.note for matcher in members if matcher.note))
        rows.append(f"| {family} | {modules} | {functions} | {notes} |")
    return "\n".join(rows)
