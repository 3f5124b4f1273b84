"""What functions of this library return, for annotations and ``isinstance``."""

from ntkit._src.dynamics import Evidence, LearningCurves, LeaveOneOut, Posterior
from ntkit._src.finite import MonteCarlo, Trajectory
from ntkit._src.gram import ClusterKernel, StoredGram
from ntkit._src.kernels import Empirical, Explanation, InfiniteWidth, InfiniteWidthKernel, NtkAndNngp
from ntkit._src.labels import FiniteWidthCorrection, HierarchyTerms, Hoeffding
from ntkit._src.solvers import Solution
from ntkit._src.trace import Adapted

__all__ = [
    "Adapted",
    "ClusterKernel",
    "Empirical",
    "Evidence",
    "Explanation",
    "FiniteWidthCorrection",
    "HierarchyTerms",
    "Hoeffding",
    "InfiniteWidth",
    "InfiniteWidthKernel",
    "LearningCurves",
    "LeaveOneOut",
    "MonteCarlo",
    "NtkAndNngp",
    "Posterior",
    "Solution",
    "StoredGram",
    "Trajectory",
]
