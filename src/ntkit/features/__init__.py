"""Feature learning: what a network learns beyond its kernel; :mod:`~ntkit.features.rfm` has the steps of feature machines."""

from ntkit._src.features import *  # noqa: F403
from ntkit._src.features import __all__ as _names

from . import rfm

__all__ = [*_names, "rfm"]  # pyright: ignore[reportUnsupportedDunderAll]
