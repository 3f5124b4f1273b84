"""Finite networks: NTK parametrisation, initialisation, widths, linearisation and training."""

from ntkit._src.common import Elementary

from ._initialize import initialize, seeded
from ._monte_carlo import Estimate, MonteCarlo, MonteCarloKernel, monte_carlo
from ._parametrize import parametrize_ntk, remove_ntk
from ._taylor import linearize, taylor
from .training import Checkpoint, Record, Schedule, TrainState, Trajectory, train
from .widening import widen

__all__ = [
    "Checkpoint",
    "Elementary",
    "Estimate",
    "MonteCarlo",
    "MonteCarloKernel",
    "Record",
    "Schedule",
    "TrainState",
    "Trajectory",
    "initialize",
    "linearize",
    "monte_carlo",
    "parametrize_ntk",
    "remove_ntk",
    "seeded",
    "taylor",
    "train",
    "widen",
]
