"""Methods of the papers that are no part of the library: federated learning, inpainting, courses of training, predictions.

They are for readers of the papers, and for the studies here; what a user of kernels looks for is in :mod:`ntkit`.
"""

from ._early_alignment import EarlyAlignment, early_alignment
from ._elasticity_course import ElasticityCourse, elasticity_course
from ._error_barrier import ErrorBarrier, error_barrier
from ._frequency_course import FrequencyCourse, frequency_course
from ._integrate import Integration, integrate
from ._predict_alignment import AlignmentPrediction, expected_derivatives, predict_alignment
from ._relabelling import Curse, LabelAwareModel, Relabelling, curse_of_label_agnosticism, relabel
from ._spawn_study import SpawnStudy, spawn_study
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
    "AlignmentPrediction",
    "Coordinate",
    "Curse",
    "EarlyAlignment",
    "ElasticityCourse",
    "ErrorBarrier",
    "FederatedAveraging",
    "FederatedNTK",
    "FrequencyCourse",
    "Inpainting",
    "InpaintingKernel",
    "Integration",
    "LabelAwareModel",
    "Relabelling",
    "Round",
    "SpawnStudy",
    "TrainConvexifyTrain",
    "Worker",
    "curse_of_label_agnosticism",
    "early_alignment",
    "elasticity_course",
    "encoder_decoder",
    "error_barrier",
    "expected_derivatives",
    "frequency_course",
    "inpaint",
    "integrate",
    "predict_alignment",
    "recover_inputs",
    "relabel",
    "spawn_study",
]
