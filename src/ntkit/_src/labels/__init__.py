"""Label-aware kernels: pairwise regression, the tangent hierarchy, Hoeffding's decomposition, alignment."""

from ntkit._src.common import check_labels, class_numbers

from ._alignment import alignment
from .decomposition import Hoeffding, hoeffding
from .hierarchy import (
    Accuracy,
    FiniteWidthCorrection,
    HierarchySource,
    HierarchyTerm,
    HierarchyTerms,
    ModuleHierarchy,
    TangentHierarchy,
    TwoLayerHierarchy,
    finite_width_correction,
    hierarchy_kernel,
    hierarchy_terms,
)
from .pairs import (
    STRENGTHS,
    Definiteness,
    LabelAware,
    PairEstimator,
    Pairs,
    StrengthSearch,
    definiteness,
    function_of_labels,
)

__all__ = [
    "STRENGTHS",
    "Accuracy",
    "Definiteness",
    "FiniteWidthCorrection",
    "HierarchySource",
    "HierarchyTerm",
    "HierarchyTerms",
    "Hoeffding",
    "LabelAware",
    "ModuleHierarchy",
    "PairEstimator",
    "Pairs",
    "StrengthSearch",
    "TangentHierarchy",
    "TwoLayerHierarchy",
    "alignment",
    "check_labels",
    "class_numbers",
    "definiteness",
    "finite_width_correction",
    "function_of_labels",
    "hierarchy_kernel",
    "hierarchy_terms",
    "hoeffding",
]
