"""Every public name with its signature, as text: ``python tests/public_contract.py`` writes public_contract.txt anew."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import ntkit

FILE = Path(__file__).with_name("public_contract.txt")


def signatures() -> str:
    """Give one line per public function, class and method: names, order, kinds and defaults of its parameters."""
    return "\n".join(_of_module(ntkit, "")) + "\n"


def _of_module(module: ModuleType, prefix: str) -> list[str]:
    lines = []
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if isinstance(value, ModuleType):
            lines += _of_module(value, f"{prefix}{name}.")
        elif inspect.isclass(value):
            lines += [f"{prefix}{name}.{method}{line}" for method, line in _methods(value)]
        elif inspect.isfunction(value):
            lines.append(prefix + name + _signature(value))
    return lines


def _methods(kind: type) -> Iterator[tuple[str, str]]:
    for name, value in sorted(vars(kind).items()):
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if inspect.isfunction(function) and (name in ("__init__", "__call__") or not name.startswith("_")):
            yield name, _signature(function)


def _signature(function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


if __name__ == "__main__":
    FILE.write_text(signatures(), encoding="utf-8")
