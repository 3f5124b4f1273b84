"""Every public name with its signature, as text: ``python tests/public_contract.py`` writes public_contract.txt anew."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import ntkit

FILE = Path(__file__).with_name("public_contract.txt")


def signatures() -> str:
    """Give one line per public function, class and method: names, order, kinds and defaults of its parameters."""
    lines = []
    for name in sorted(ntkit.__all__):
        value = getattr(ntkit, name)
        if inspect.isclass(value):
            lines += [f"{name}.{method}{line}" for method, line in _methods(value)]
        elif inspect.isfunction(value):
            lines.append(name + _signature(value))
    return "\n".join(lines) + "\n"


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
