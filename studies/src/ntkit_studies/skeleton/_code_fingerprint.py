"""A hash of the code that computes a result, so that an edited experiment does not reuse outdated results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

__all__ = ["code_fingerprint"]

_PACKAGE = __name__.rpartition(".skeleton")[0]


def code_fingerprint(*functions: Callable[..., Any]) -> str:
    """Hash functions and the experiments' own functions, classes and constants that they use.

    The library below is left out: its version stands for it. Comments and formatting do not count, but docstrings do.

    Parameters
    ----------
    functions
        Those that compute a result.
    """
    reader = _Reader({getattr(function, "__module__", None) or "" for function in functions})
    digest = hashlib.sha256()
    for function in functions:
        for part in reader.parts(function):
            digest.update(part.encode() + b"\0")
    return digest.hexdigest()


class _Reader:
    """Yields texts that change with a value; functions and classes from elsewhere yield none."""

    def __init__(self, modules: set[str]) -> None:
        self._modules = modules
        self._seen: set[int] = set()

    def parts(self, value: Any) -> Iterator[str]:
        """Yield the texts of a value, of each function and class once."""
        match value:
            case partial():
                yield from self.parts((value.func, value.args, tuple(sorted(value.keywords.items()))))
            case FunctionType() | type():
                ours = value.__module__ in self._modules or value.__module__.startswith(_PACKAGE)
                if ours and id(value) not in self._seen:
                    self._seen.add(id(value))
                    yield value.__qualname__
                    yield from self._function(value) if isinstance(value, FunctionType) else self._members(value)
            case tuple() | list():
                for one in value:
                    yield from self.parts(one)
            case dict():
                for key, one in value.items():
                    yield repr(key)
                    yield from self.parts(one)
            case bool() | int() | float() | str():
                yield repr(value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield from self.parts((function.__defaults__, function.__kwdefaults__))
        for code in _codes(function.__code__):
            yield code.co_code.hex()
            yield repr([one for one in code.co_consts if not isinstance(one, CodeType)])
            for name in code.co_names:
                yield name
                yield from self.parts(function.__globals__.get(name))

    def _members(self, kind: type) -> Iterator[str]:
        yield repr(getattr(kind, "__annotations__", {}))
        for name, member in vars(kind).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType):
                yield name
                yield from self.parts(function)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
