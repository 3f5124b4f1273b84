"""What a network learns beyond its kernel: local elasticity, relabelling, attribution to training points."""

from ._attribution import Attribution, attribute
from ._elasticity_course import ElasticityCourse, elasticity_course
from ._local_elasticity import local_elasticity
from ._relabelling import Curse, LabelAwareModel, Relabelling, curse_of_label_agnosticism, relabel

__all__ = [
    "Attribution",
    "Curse",
    "ElasticityCourse",
    "LabelAwareModel",
    "Relabelling",
    "attribute",
    "curse_of_label_agnosticism",
    "elasticity_course",
    "local_elasticity",
    "relabel",
]
