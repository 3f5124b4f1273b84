"""A hash of the code that computes a result, so that an edited experiment does not take its old results for new ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

__all__ = ["code_fingerprint"]

_PACKAGE = __name__.rpartition(".skeleton")[0]


def code_fingerprint(*functions: Callable[..., Any]) -> str:
    """Hash functions and what they use of the experiments' own functions, classes and constants.

    The library below is left out: its version stands for it. Comments and formatting do not count.

    Parameters
    ----------
    functions
        Those that compute a result.
    """
    digest = hashlib.sha256()
    seen: set[int] = set()
    for function in functions:
        for part in _parts(function, seen):
            digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    """Give texts that change with a value; functions and classes of other packages give none."""
    if isinstance(value, partial):
        yield from _parts((value.func, value.args, tuple(sorted(value.keywords.items()))), seen)
    elif isinstance(value, FunctionType):
        if value.__module__.startswith(_PACKAGE) and id(value) not in seen:
            seen.add(id(value))
            yield value.__qualname__
            yield from _parts((value.__defaults__, value.__kwdefaults__), seen)
            for code in _codes(value.__code__):
                yield code.co_code.hex()
                yield repr([one for one in code.co_consts if not isinstance(one, CodeType)])
                for name in code.co_names:
                    yield name
                    yield from _parts(value.__globals__.get(name), seen)
    elif isinstance(value, type):
        if value.__module__.startswith(_PACKAGE) and id(value) not in seen:
            seen.add(id(value))
            yield repr(getattr(value, "__annotations__", {}))
            for name, member in vars(value).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(function, FunctionType):
                    yield name
                    yield from _parts(function, seen)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _parts(one, seen)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield repr(key)
            yield from _parts(one, seen)
    elif isinstance(value, (bool, int, float, str)):
        yield repr(value)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
