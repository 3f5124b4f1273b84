"""Finite networks: NTK parametrisation, initialisation, widths, linearisation and training."""

from ._initialize import initialize, seeded
from ._monte_carlo import Estimate, MonteCarlo, MonteCarloKernel, monte_carlo
from ._parametrize import parametrize_ntk, remove_ntk
from ._taylor import linearize, taylor
from .training import Checkpoint, Record, Schedule, TrainState, Trajectory, train
from .widening import widen
