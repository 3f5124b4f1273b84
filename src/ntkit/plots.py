"""Figures, with matplotlib (``pip install 'ntkit[plot]'``)."""

from ntkit._src.plots import *  # noqa: F403
from ntkit._src.plots import __all__ as __all__
