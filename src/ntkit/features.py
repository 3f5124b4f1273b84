"""Feature learning: what a network learns beyond its kernel."""

from ntkit._src.features import *  # noqa: F403
from ntkit._src.features import __all__ as __all__
