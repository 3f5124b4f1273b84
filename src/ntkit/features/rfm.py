"""Recursive feature machines, step by step."""

from ntkit._src.features.rfm import *  # noqa: F403
from ntkit._src.features.rfm import __all__ as __all__
