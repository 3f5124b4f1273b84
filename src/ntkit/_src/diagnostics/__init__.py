"""What the kernel says about a network: spectra, bounds, kernel evolution, local elasticity, attribution, work."""

from ._attribution import Attribution, attribute
from ._bounds import Assumption, Bound, Bounds, bounds
from ._depth_scales import DepthScales, depth_scales
from ._kernel_recorder import KernelHistory, KernelRecorder, kernel_distance
from ._learning_times import LearningTimes, learning_times
from ._local_elasticity import local_elasticity
from ._mercer import MercerSpectrum, mercer
from ._normalized_limit import normalized_limit
from ._pair_operations import pair_operations
from ._two_layer_gram import two_layer_gram

__all__ = [
    "Assumption",
    "Attribution",
    "Bound",
    "Bounds",
    "DepthScales",
    "KernelHistory",
    "KernelRecorder",
    "LearningTimes",
    "MercerSpectrum",
    "attribute",
    "bounds",
    "depth_scales",
    "kernel_distance",
    "learning_times",
    "local_elasticity",
    "mercer",
    "normalized_limit",
    "pair_operations",
    "two_layer_gram",
]
