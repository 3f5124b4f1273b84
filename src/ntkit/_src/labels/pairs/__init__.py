"""Label-aware kernels by regression on pairs of points (Chen, He, Su 2020, sections 2.1, 3.1, D.3)."""

from ._function_of_labels import function_of_labels
from ._label_aware import STRENGTHS, Definiteness, LabelAware, definiteness
from ._pairs import PairEstimator, Pairs
from ._strength import StrengthSearch

__all__ = [
    "STRENGTHS",
    "Definiteness",
    "LabelAware",
    "PairEstimator",
    "Pairs",
    "StrengthSearch",
    "definiteness",
    "function_of_labels",
]
