"""Neural tangent kernels of ordinary PyTorch modules."""

from ntkit.diagnostics import Attribution, attribute, local_elasticity
from ntkit.dynamics import (
    Descent,
    Evidence,
    GradientFlow,
    LearningCurves,
    LeaveOneOut,
    Posterior,
    evidence,
    leave_one_out,
    log_marginal_likelihood,
    max_learning_rate,
    posterior,
)
from ntkit.estimators import LabelAwareClassifier, NTKClassifier, NTKRegressor
from ntkit.finite import (
    MonteCarlo,
    TrainState,
    Trajectory,
    initialize,
    linearize,
    monte_carlo,
    parametrize_ntk,
    remove_ntk,
    taylor,
    train,
    widen,
)
from ntkit.kernels import (
    Empirical,
    InfiniteWidth,
    Kernel,
    as_gpytorch_kernel,
    as_sklearn_kernel,
    empirical,
    infinite_width,
)
from ntkit.labels import (
    FiniteWidthCorrection,
    HierarchyTerms,
    Hoeffding,
    LabelAware,
    TangentHierarchy,
    alignment,
    finite_width_correction,
    hierarchy_terms,
    hoeffding,
    tangent_hierarchy,
)
from ntkit.native import build_info
from ntkit.solvers import Solution, solve
from ntkit.trace import Adapted, Elementwise, adapt, supported_layers

from . import errors, testing

__version__ = build_info().version

__all__ = [
    "Adapted",
    "Attribution",
    "Descent",
    "Elementwise",
    "Empirical",
    "Evidence",
    "FiniteWidthCorrection",
    "GradientFlow",
    "HierarchyTerms",
    "Hoeffding",
    "InfiniteWidth",
    "Kernel",
    "LabelAware",
    "LabelAwareClassifier",
    "LearningCurves",
    "LeaveOneOut",
    "MonteCarlo",
    "NTKClassifier",
    "NTKRegressor",
    "Posterior",
    "Solution",
    "TangentHierarchy",
    "TrainState",
    "Trajectory",
    "adapt",
    "alignment",
    "as_gpytorch_kernel",
    "as_sklearn_kernel",
    "attribute",
    "empirical",
    "errors",
    "evidence",
    "finite_width_correction",
    "hierarchy_terms",
    "hoeffding",
    "infinite_width",
    "initialize",
    "leave_one_out",
    "linearize",
    "local_elasticity",
    "log_marginal_likelihood",
    "max_learning_rate",
    "monte_carlo",
    "parametrize_ntk",
    "posterior",
    "remove_ntk",
    "solve",
    "supported_layers",
    "tangent_hierarchy",
    "taylor",
    "testing",
    "train",
    "widen",
]
