"""Training for theory: gradient descent and gradient flow of whole parameter vectors, recorded and resumable."""

from ._record import Checkpoint, Record, TrainState, Trajectory
from ._schedule import Schedule
from ._train import train
