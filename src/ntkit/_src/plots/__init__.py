"""Figures of kernels and learning curves; needs ``pip install 'ntkit[plot]'``.

The functions that draw take matplotlib axes and return them. They never touch pyplot, so the choice of backend stays the user's.
"""

from ._curves import CurveStyle, new_figure, plot_accuracy
from ._dynamics import plot_learning_curves, plot_losses, plot_posterior, plot_predictions
from ._features import figure_history, figure_matrices, plot_against_steps, plot_metric_diagonal
from ._kernels import plot_eigenvalue_decay, plot_heat_map, plot_levels, plot_shares, plot_spectrum

__all__ = [
    "CurveStyle",
    "figure_history",
    "figure_matrices",
    "new_figure",
    "plot_accuracy",
    "plot_against_steps",
    "plot_eigenvalue_decay",
    "plot_heat_map",
    "plot_learning_curves",
    "plot_levels",
    "plot_losses",
    "plot_metric_diagonal",
    "plot_posterior",
    "plot_predictions",
    "plot_shares",
    "plot_spectrum",
]
