"""The tangent hierarchy and the label-aware kernel that follows from it (Chen, He, Su 2020, sections 2.2, A.2, B)."""

from ._finite_width_correction import FiniteWidthCorrection, finite_width_correction
from ._hierarchy_kernel import HierarchyTerm, HierarchyTerms, hierarchy_kernel, hierarchy_terms
from ._module_hierarchy import HierarchySource, ModuleHierarchy
from ._tangent_hierarchy import TangentHierarchy
from ._two_layer_hierarchy import Accuracy, TwoLayerHierarchy

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
    "hierarchy_kernel",
    "hierarchy_terms",
]
