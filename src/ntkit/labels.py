"""What label-aware kernels are built from; the kernels themselves are `ntkit.LabelAware` and `ntkit.TangentHierarchy`."""

from ntkit._src.labels import STRENGTHS, ModuleHierarchy, PairEstimator, Pairs, TwoLayerHierarchy, function_of_labels

__all__ = [
    "STRENGTHS",
    "ModuleHierarchy",
    "PairEstimator",
    "Pairs",
    "TwoLayerHierarchy",
    "function_of_labels",
]
