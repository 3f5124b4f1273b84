"""Figures of kernels and learning curves, and reports in one HTML file; needs ``pip install 'ntkit[plot]'``.

The functions that draw take matplotlib axes and give them back. They never touch pyplot, so the backend stays the user's.
"""

from __future__ import annotations

from ._curves import CurveStyle, plot_accuracy
from ._kernels import plot_heat_map, plot_spectrum
from ._report import Picture, Section, Table, html_report, new_figure

__all__ = [
    "CurveStyle",
    "Picture",
    "Section",
    "Table",
    "html_report",
    "new_figure",
    "plot_accuracy",
    "plot_heat_map",
    "plot_spectrum",
]
