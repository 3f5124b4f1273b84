"""Applications of tangent kernels: completion, inpainting, training in weight space, federated learning, search."""

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
from .inpainting import Inpainting, InpaintingKernel, encoder_decoder, inpaint

__all__ = [
    "Coordinate",
    "FederatedAveraging",
    "FederatedNTK",
    "Inpainting",
    "InpaintingKernel",
    "Integration",
    "NTKImputer",
    "Round",
    "TrainConvexifyTrain",
    "Worker",
    "encoder_decoder",
    "inpaint",
    "integrate",
    "recover_inputs",
    "search",
]
