"""Matrix completion by kernel regression over the columns' similarity."""

from ._imputer import NTKImputer
