"""Figures that only studies draw, and reports in one HTML file; :mod:`ntkit.plots` has the others."""

from __future__ import annotations

from ._finite import PowerLaw, fit_power_law, plot_random_features, plot_width_errors
from ._html import Link, Picture, Section, Table, html_report
from ._labels import plot_accuracies, plot_elasticity, plot_relabelling
from ._proxy import plot_proxy
from ._spread import plot_spread

__all__ = [
    "Link",
    "Picture",
    "PowerLaw",
    "Section",
    "Table",
    "fit_power_law",
    "html_report",
    "plot_accuracies",
    "plot_elasticity",
    "plot_proxy",
    "plot_random_features",
    "plot_relabelling",
    "plot_spread",
    "plot_width_errors",
]
