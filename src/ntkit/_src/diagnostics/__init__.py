"""What the kernel says about a network: spectra, bounds, kernel evolution, local elasticity, attribution."""

from ._attribution import Attribution, attribute
from ._bounds import Assumption, Bound, Bounds, bounds
from ._elasticity_course import ElasticityCourse, elasticity_course
from ._error_barrier import ErrorBarrier, error_barrier
from ._frequency_course import FrequencyCourse, frequency_course
from ._kernel_distance import kernel_distance
from ._kernel_recorder import KernelHistory, KernelRecorder
from ._learning_times import LearningTimes, learning_times
from ._local_elasticity import local_elasticity
from ._mercer import MercerSpectrum, mercer
from ._normalized_limit import normalized_limit
from ._relabelling import Curse, LabelAwareModel, Relabelling, curse_of_label_agnosticism, relabel
from ._spawn_study import SpawnStudy, spawn_study
from ._two_layer_gram import two_layer_gram

__all__ = [
    "Assumption",
    "Attribution",
    "Bound",
    "Bounds",
    "Curse",
    "ElasticityCourse",
    "ErrorBarrier",
    "FrequencyCourse",
    "KernelHistory",
    "KernelRecorder",
    "LabelAwareModel",
    "LearningTimes",
    "MercerSpectrum",
    "Relabelling",
    "SpawnStudy",
    "attribute",
    "bounds",
    "curse_of_label_agnosticism",
    "elasticity_course",
    "error_barrier",
    "frequency_course",
    "kernel_distance",
    "learning_times",
    "local_elasticity",
    "mercer",
    "normalized_limit",
    "relabel",
    "spawn_study",
    "two_layer_gram",
]
