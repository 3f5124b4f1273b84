"""Label-aware kernels: pairwise regression, the tangent hierarchy, Hoeffding's decomposition, alignment."""

from ._alignment import alignment
from ._classes import check_labels, class_numbers
from ._finite_width_correction import FiniteWidthCorrection, finite_width_correction
from ._hierarchy import TangentHierarchy
from ._hierarchy_contractions import tangent_hierarchy
from ._hierarchy_module import ModuleHierarchy
from ._hierarchy_source import HierarchySource
from ._hierarchy_terms import HierarchyTerm, HierarchyTerms, hierarchy_terms
from ._hoeffding import Hoeffding, hoeffding
from ._label_aware import STRENGTHS, LabelAware
from ._label_function import function_of_labels
from ._pair_block import PairEstimator, Pairs
from ._pair_definite import Definiteness, definiteness, shift_needed
from ._strength import StrengthSearch
from ._two_layer import TwoLayerHierarchy

__all__ = [
    "STRENGTHS",
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
    "hierarchy_terms",
    "hoeffding",
    "shift_needed",
    "tangent_hierarchy",
]
