"""The tangent hierarchy and the label-aware kernel that follows from it (Chen, He, Su 2020, sections 2.2, A.2, B)."""

from ._accuracy import Accuracy
from ._contractions import tangent_hierarchy
from ._finite_width_correction import FiniteWidthCorrection, finite_width_correction
from ._hierarchy_source import HierarchySource
from ._hierarchy_terms import HierarchyTerm, HierarchyTerms, hierarchy_terms
from ._module_hierarchy import ModuleHierarchy
from ._tangent_hierarchy import TangentHierarchy
from ._two_layer_hierarchy import TwoLayerHierarchy

__all__ = [
    "Accuracy",
    "FiniteWidthCorrection",
    "HierarchySource",
    "HierarchyTerm",
    "HierarchyTerms",
    "ModuleHierarchy",
    "TangentHierarchy",
    "TwoLayerHierarchy",
    "finite_width_correction",
    "hierarchy_terms",
    "tangent_hierarchy",
]
