"""An empty figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ntkit.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Return an empty matplotlib figure without a backend, width and height in inches.

    Raises
    ------
    MissingDependencyError
        If matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("figures need matplotlib: pip install 'ntkit[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")
