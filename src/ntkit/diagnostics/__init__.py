"""What a network learns and its kernel says of it: spectra, bounds, kernel evolution, local elasticity, attribution."""

from ._attribution import Attribution, attribute
from ._elasticity_course import ElasticityCourse, elasticity_course
from ._frequency_course import FrequencyCourse, frequency_course
from ._learning_times import LearningTimes, learning_times
from ._local_elasticity import local_elasticity
from ._mercer import MercerSpectrum, mercer
from ._relabelling import Curse, LabelAwareModel, Relabelling, curse_of_label_agnosticism, relabel

__all__ = [
    "Attribution",
    "Curse",
    "ElasticityCourse",
    "FrequencyCourse",
    "LabelAwareModel",
    "LearningTimes",
    "MercerSpectrum",
    "Relabelling",
    "attribute",
    "curse_of_label_agnosticism",
    "elasticity_course",
    "frequency_course",
    "learning_times",
    "local_elasticity",
    "mercer",
    "relabel",
]
