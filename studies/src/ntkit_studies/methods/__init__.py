"""Methods of the papers that are no part of the library: federated learning, inpainting, courses of training, predictions.

They are for readers of the papers, and for the studies here; what a user of kernels looks for is in :mod:`ntkit`.
"""

from ._alignment_terms import AlignmentTerms, alignment_terms, predicted_covariance
from ._cluster_graph import cluster_exponent, higher_kernel, kernel_exponents
from ._convolutional_rfm import ConvolutionalState, DeepLayer, convolutional_rfm, deep_convolutional_rfm, patches
from ._early_alignment import EarlyAlignment, early_alignment
from ._elasticity_course import ElasticityCourse, elasticity_course
from ._error_barrier import ErrorBarrier, error_barrier
from ._free_trace import free_trace
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
    "AlignmentTerms",
    "ConvolutionalState",
    "Coordinate",
    "Curse",
    "DeepLayer",
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
    "alignment_terms",
    "cluster_exponent",
    "convolutional_rfm",
    "curse_of_label_agnosticism",
    "deep_convolutional_rfm",
    "early_alignment",
    "elasticity_course",
    "encoder_decoder",
    "error_barrier",
    "expected_derivatives",
    "free_trace",
    "frequency_course",
    "higher_kernel",
    "inpaint",
    "integrate",
    "kernel_exponents",
    "patches",
    "predict_alignment",
    "predicted_covariance",
    "recover_inputs",
    "relabel",
    "spawn_study",
]
