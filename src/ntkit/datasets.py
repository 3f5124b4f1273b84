"""Loaders of public data sets, and balanced splits."""

from ntkit._src.datasets import *  # noqa: F403
from ntkit._src.datasets import __all__ as __all__
