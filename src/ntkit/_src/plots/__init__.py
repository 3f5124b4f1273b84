"""Figures of kernels and learning curves, and reports in one HTML file; needs ``pip install 'ntkit[plot]'``.

The functions that draw take matplotlib axes and return them. They never touch pyplot, so the choice of backend stays the user's.
"""

from __future__ import annotations

from ._applications import plot_proxy
from ._curves import CurveStyle, plot_accuracy
from ._diagnostics import plot_eigenvalue_decay, plot_spread
from ._dynamics import plot_learning_curves, plot_losses, plot_posterior, plot_predictions
from ._features import figure_history, figure_matrices, plot_against_steps, plot_metric_diagonal
from ._finite import PowerLaw, fit_power_law, plot_random_features, plot_width_errors
from ._kernels import plot_heat_map, plot_shares, plot_spectrum
from ._labels import plot_accuracies, plot_elasticity, plot_levels, plot_relabelling
from ._report import Link, Picture, Section, Table, html_report, new_figure

__all__ = [
    "CurveStyle",
    "Link",
    "Picture",
    "PowerLaw",
    "Section",
    "Table",
    "figure_history",
    "figure_matrices",
    "fit_power_law",
    "html_report",
    "new_figure",
    "plot_accuracies",
    "plot_accuracy",
    "plot_against_steps",
    "plot_eigenvalue_decay",
    "plot_elasticity",
    "plot_heat_map",
    "plot_learning_curves",
    "plot_levels",
    "plot_losses",
    "plot_metric_diagonal",
    "plot_posterior",
    "plot_predictions",
    "plot_proxy",
    "plot_random_features",
    "plot_relabelling",
    "plot_shares",
    "plot_spectrum",
    "plot_spread",
    "plot_width_errors",
]
