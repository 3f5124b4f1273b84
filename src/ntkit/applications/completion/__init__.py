"""Matrix completion by kernel regression over the columns' similarity."""

from ._imputer import NTKImputer
from ._offsets import Offsets

__all__ = ["NTKImputer", "Offsets"]
