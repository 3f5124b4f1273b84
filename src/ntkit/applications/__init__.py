"""What tangent kernels are used for: matrix completion, training in weight space, federated learning, search."""

from . import search
from ._integrate import Integration, integrate
from .completion import NTKImputer
from .federated import (
    Coordinate,
    FederatedAveraging,
    FederatedNTK,
    Round,
    TrainConvexifyTrain,
    Worker,
    recover_inputs,
)

__all__ = [
    "Coordinate",
    "FederatedAveraging",
    "FederatedNTK",
    "Integration",
    "NTKImputer",
    "Round",
    "TrainConvexifyTrain",
    "Worker",
    "integrate",
    "recover_inputs",
    "search",
]
