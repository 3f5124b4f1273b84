"""A hash of a traced network: the same for the same operations, gains and shapes, in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit.program import Program

__all__ = ["program_fingerprint"]


def program_fingerprint(program: Program) -> str:
    """Hash the operations of a program with their gains, shapes and functions.

    Raises
    ------
    InputError
        If it holds a function that cannot be hashed.
    """
    digest = hashlib.sha256()
    for part in _parts((program.nodes, program.prefixes)):
        digest.update(part + b"\0")
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    if is_dataclass(value):
        yield type(value).__qualname__.encode()
        for field in fields(value):
            if field.name != "path":  # where in the module a node comes from changes no number
                yield field.name.encode()
                yield from _parts(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        yield f"{len(value)} values".encode()
        for one in value:
            yield from _parts(one)
    elif isinstance(value, Tensor):
        array = value.detach().cpu().contiguous()
        yield f"{array.dtype} {tuple(array.shape)}".encode()
        yield array.numpy().tobytes()
    elif isinstance(value, (bool, int, float, str, bytes, Enum, type(None), torch.dtype, torch.device)):
        yield repr(value).encode()
    else:
        yield from _function(value)


def _function(value: Callable[..., Any]) -> Iterator[bytes]:
    if isinstance(value, torch.fx.GraphModule):
        yield value.code.encode()
    if isinstance(value, nn.Module):
        yield f"{type(value).__module__}.{type(value).__qualname__} {value!r}".encode()
        for name, tensor in value.state_dict().items():
            yield name.encode()
            yield from _parts(tensor)
    elif isinstance(value, partial):
        yield from _parts((value.func, value.args, tuple(sorted(value.keywords.items()))))
    elif isinstance(value, FunctionType):
        yield from _code(value.__code__)
        yield from _parts((value.__defaults__, tuple(cell.cell_contents for cell in value.__closure__ or ())))
    elif isinstance(value, BuiltinFunctionType) or type(value).__name__ == "method_descriptor":
        yield f"{getattr(value, '__module__', '')}.{value.__qualname__}".encode()
    else:
        raise InputError(
            f"a kernel is stored under a hash of its network, and {value!r} has none. Write the function as a module."
        )


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr(code.co_names).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant).encode()
