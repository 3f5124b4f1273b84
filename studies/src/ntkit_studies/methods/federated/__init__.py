"""Federated learning: data stay with the workers; kernels, sketches or averages are sent."""

from ._averaging import FederatedAveraging
from ._coordinates import Coordinate
from ._federated_ntk import FederatedNTK, Round
from ._recover_inputs import recover_inputs
from ._tangent_regression import TrainConvexifyTrain
from ._worker import Worker

__all__ = [
    "Coordinate",
    "FederatedAveraging",
    "FederatedNTK",
    "Round",
    "TrainConvexifyTrain",
    "Worker",
    "recover_inputs",
]
