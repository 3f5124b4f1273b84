"""The tangent hierarchy and the label-aware kernel that follows from it (Chen, He, Su 2020, sections 2.2, A.2, B)."""

from ._contractions import tangent_hierarchy
from ._finite_width_correction import FiniteWidthCorrection, finite_width_correction
from ._module import ModuleHierarchy
from ._source import HierarchySource
from ._tangent_hierarchy import TangentHierarchy
from ._terms import HierarchyTerm, HierarchyTerms, hierarchy_terms
from ._two_layer import TwoLayerHierarchy

__all__ = [
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
