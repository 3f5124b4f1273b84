"""Training for theory: gradient descent and gradient flow of whole parameter vectors, recorded and resumable."""

from ._train import train
from ._trajectory import TrainState, Trajectory

__all__ = ["TrainState", "Trajectory", "train"]
