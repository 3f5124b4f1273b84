"""Matrix completion by kernel regression over the columns' similarity."""

from ._entries import Entries, read_entries
from ._imputer import NTKImputer
from ._offsets import Offsets, fit_offsets

__all__ = ["Entries", "NTKImputer", "Offsets", "fit_offsets", "read_entries"]
