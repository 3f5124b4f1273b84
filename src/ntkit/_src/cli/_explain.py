"""``ntkit explain``: how the kernels of a network are computed."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

from ntkit._src.kernels import infinite_width
from ntkit.errors import InputError

from ._console import Json, Shape, command, emit, read_shape
from ._modules import Module, read_module


@command(
    "ntkit explain my_package.nets:resnet --shape 3,32,32",
    "ntkit explain net.toml --shape 784",
)
def explain(module: Module, shape: Shape = None, json: Json = False) -> None:
    """Show how the kernels of a network are computed.

    Lists each operation, what is kept of its covariance, at what cost, and which engine runs it.
    """
    of_one = read_shape(shape)
    if of_one is None:
        raise InputError("--shape must be the shape of one input, such as 784 or 3,32,32.")
    found = infinite_width(read_module(module)).explain(of_one)
    rows = [{name: _plain(value) for name, value in asdict(row).items()} for row in found.rows]
    emit({"module": module, "shape": list(of_one), "operations": rows}, json, str(found))


def _plain(value: Any) -> Any:
    """Convert to what JSON holds: tuples to lists, enums to their names."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value.name.lower() if isinstance(value, Enum) else value
