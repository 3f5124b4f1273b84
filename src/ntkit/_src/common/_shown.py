"""Values in messages: short ones as they are, tensors and arrays by what they are, sizes and times with a unit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

__all__ = ["bytes_text", "seconds_text", "shown"]

_LENGTH = 160  # characters of a message that one value may take


def shown(value: object) -> str:
    """Describe a value in a message: a tensor or array by shape and dtype, what is long by its type, the rest as Python does."""
    text = _written(value)
    if len(text) <= _LENGTH:
        return text
    size = f" of length {len(value)}" if isinstance(value, (str, list, tuple, set, frozenset, Mapping)) else ""
    return f"a {type(value).__name__}{size}"


def _written(value: object) -> str:
    if isinstance(value, (Tensor, np.ndarray)) and value.ndim > 0:
        kind = "a tensor" if isinstance(value, Tensor) else "an array"
        return f"{kind} of shape {tuple(value.shape)} and dtype {value.dtype}"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {_written(one)}' for key, one in value.items())}}}"
    if type(value) in (list, tuple):
        inside = ", ".join(map(_written, value))  # type: ignore[call-overload]
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)" if len(value) == 1 else f"({inside})"  # type: ignore[arg-type]
    return repr(value)


def bytes_text(count: float) -> str:
    """Format a number of bytes: 10.0 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} bytes"


def seconds_text(seconds: float) -> str:
    """Format a duration: 1.5 h."""
    for unit, least, size in (("days", 172_800, 86_400), ("h", 3600, 3600), ("min", 60, 60)):
        if seconds >= least:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
