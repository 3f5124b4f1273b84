"""The nearest module that has an infinite-width limit: ``ntkit.adapt``."""

from ._adapt import Adapted, Change, adapt
