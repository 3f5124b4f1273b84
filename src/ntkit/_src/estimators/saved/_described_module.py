"""Networks as plain data: a list of layers of ``torch.nn`` with their arguments, and back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from ntkit._src.common import restored_generator
from ntkit.errors import InputError

_NOT_ARGUMENTS = ("self", "args", "kwargs", "device", "dtype", "inplace")


def build_described(layers: Sequence[Mapping[str, Any]], where: str = "the description") -> nn.Sequential:
    """Build a network from the description of its layers, in evaluation mode: a description has kernels, without dropout.

    A layer is a mapping with ``layer``, the name of a class of ``torch.nn``, and its arguments by name. ``frozen = true`` freezes
    its parameters; ``Sequential`` takes a nested list ``layers``. Messages call the description ``where``.

    Examples
    --------
    >>> net = build_described([
    ...     {"layer": "Linear", "in_features": 5, "out_features": 64}, {"layer": "ReLU"},
    ...     {"layer": "Linear", "in_features": 64, "out_features": 1, "frozen": True},
    ... ])
    >>> net[2]
    Linear(in_features=64, out_features=1, bias=True)
    >>> describe_module(net)[1]
    {'layer': 'ReLU'}
    """
    if not isinstance(layers, Sequence) or isinstance(layers, str) or not layers:
        raise InputError(f"{where} must list at least one layer. Got {layers!r:.60}.")
    # torch draws initial weights from its global generator; building a network must not advance the user's.
    with restored_generator():
        made = [_layer(one, f"layer {number} of {where}") for number, one in enumerate(layers)]
    return nn.Sequential(*made).eval()


def describe_module(module: nn.Module) -> list[dict[str, Any]] | None:
    """Describe a ``Sequential`` of layers of ``torch.nn`` as :func:`build_described` reads it; None if that is not possible."""
    if type(module) is not nn.Sequential:
        return None
    found = [_described(layer) for layer in module]
    return None if None in found else [entry for entry in found if entry is not None]


def _layer(entry: Mapping[str, Any], where: str) -> nn.Module:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("layer"), str):
        raise InputError(f'{where} must have a name, as in layer = "Linear". Got {entry!r:.60}.')
    arguments = {key: _tuples(value) for key, value in entry.items() if key not in ("layer", "frozen")}
    name = entry["layer"]
    kind = getattr(nn, name, None)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__.startswith("torch.nn.modules")):
        raise InputError(f"{where} must be a layer of torch.nn. Got {name!r}.")
    try:
        made = build_described(arguments.pop("layers", ()), where) if kind is nn.Sequential else kind(**arguments)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if isinstance(error, InputError):
            raise
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{where}, {name}, does not take these arguments: {text}") from error
    return made.requires_grad_(False) if entry.get("frozen", False) else made


def _described(layer: nn.Module) -> dict[str, Any] | None:
    kind = type(layer)
    if kind is nn.Sequential:
        inner = describe_module(layer)
        return None if inner is None else {"layer": "Sequential", "layers": inner}
    if getattr(nn, kind.__name__, None) is not kind:
        return None
    entry: dict[str, Any] = {"layer": kind.__name__}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if name in _NOT_ARGUMENTS:
            continue
        value = getattr(layer, name, parameter.default)
        if name == "bias":
            value = value is not None and value is not False
        if not _plain(value):
            return None
        if value != parameter.default:
            entry[name] = list(value) if isinstance(value, tuple) else value
    trained = {parameter.requires_grad for parameter in layer.parameters()}
    if len(trained) > 1 or any(True for _ in layer.children()):
        return None
    if trained == {False}:
        entry["frozen"] = True
    return entry


def _plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_plain(one) for one in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _tuples(value: Any) -> Any:
    """Return arrays of JSON and TOML as the tuples that torch's layers take."""
    if isinstance(value, list) and not any(isinstance(one, Mapping) for one in value):
        return tuple(_tuples(one) for one in value)
    return value
