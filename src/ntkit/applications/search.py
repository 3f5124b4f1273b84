"""Architecture search: scores of untrained networks."""

from ntkit._src.applications.search import *  # noqa: F403
from ntkit._src.applications.search import __all__ as __all__
