"""Applications of tangent kernels: matrix completion, inpainting, federated learning, architecture search."""

from ntkit._src.applications import (
    Coordinate,
    FederatedAveraging,
    FederatedNTK,
    Inpainting,
    InpaintingKernel,
    Integration,
    NTKImputer,
    Round,
    TrainConvexifyTrain,
    Worker,
    encoder_decoder,
    inpaint,
    integrate,
    recover_inputs,
)

from . import search

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
