"""Deprecated argument names: they keep working, with a warning that says what to write instead."""

from __future__ import annotations

import warnings

__all__ = ["warn_renamed"]


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    """Warn that an argument has been renamed.

    Parameters
    ----------
    old, new
        The argument as the caller wrote it, and what to write instead.
    stacklevel
        Of :func:`warnings.warn`, counted from this function: 3 is the caller of the function that calls it.
    """
    warnings.warn(f"{old} is deprecated: write {new}.", DeprecationWarning, stacklevel=stacklevel)
