"""The identity of a stored Gram matrix, kept next to the array so that it is never mistaken for another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ntkit.errors import StoreError

__all__ = ["Manifest"]

_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Everything that determines the entries of a stored matrix."""

    shape: tuple[int, int]  # (n1, n2) of the matrix
    tile: int  # rows and columns of a tile
    symmetric: bool  # whether it is K(x1, x1), of which only tiles on and above the diagonal are stored
    dtype: str  # the dtype of stored entries: "float32" or "float64"
    kernel: Mapping[str, str]  # the fingerprint of the kernel, part by part (:func:`kernel_fingerprint`)
    x1: str  # x1, x2: fingerprints of the data; ``x2`` is None if the matrix is symmetric
    x2: str | None
    library: str  # the version of ntkit
    format: int = _FORMAT  # the version of this layout

    def to_json(self) -> str:
        """Return the manifest as text."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str, path: object) -> Manifest:
        """Read a manifest from text, or raise an error if it is not one."""
        try:
            found = json.loads(text)
            if found["format"] != _FORMAT:
                raise StoreError(
                    f"{path} has the layout {found['format']}, and this version of ntkit knows {_FORMAT}. Use the version that "
                    f"wrote it ({found.get('library')}), or remove it."
                )
            found["shape"] = tuple(found["shape"])
            return Manifest(**{field.name: found[field.name] for field in fields(Manifest)})
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{path} must be the manifest of a stored Gram matrix. Got a file that cannot be read as one ({error!r}). Remove "
                "the store, or name another path."
            ) from error

    def differences(self, wanted: Manifest) -> list[str]:
        """Return what is stored and what was requested, wherever the two differ."""
        found = []
        for field in fields(Manifest):
            stored, asked = getattr(self, field.name), getattr(wanted, field.name)
            if stored == asked:
                continue
            if isinstance(stored, Mapping):
                found += [
                    f"{name}: {_shown(stored.get(name))} is stored, {_shown(asked.get(name))} requested"
                    for name in dict.fromkeys([*stored, *asked])
                    if stored.get(name) != asked.get(name)
                ]
            elif field.name in ("x1", "x2"):
                found.append(f"{field.name}: other data are stored (their bits, shape or dtype differ)")
            else:
                found.append(f"{field.name}: {_shown(stored)} is stored, {_shown(asked)} requested")
        return found


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
