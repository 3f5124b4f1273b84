"""Neural tangent kernels of ordinary PyTorch modules."""

from ntkit.diagnostics import local_elasticity
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
from ntkit.estimators import LabelAwareClassifier, NTKClassifier, NTKFeatures, NTKRegressor, StreamingRidge
from ntkit.estimators import LabelAwareClassifier, NTKClassifier, NTKRegressor, tabular_pipeline
from ntkit.estimators import LabelAwareClassifier, NTKClassifier, NTKRegressor, RFMClassifier, RFMRegressor
from ntkit.finite import (
    Checkpoint,
    MonteCarlo,
    Record,
    Schedule,
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
from ntkit.gram import StoredGram, gram, open_gram
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
from ntkit.trace import Elementwise, supported_layers

from . import errors, features, testing

__version__ = build_info().version

__all__ = [
    "Checkpoint",
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
    "NTKFeatures",
    "NTKRegressor",
    "Posterior",
    "Record",
    "Schedule",
    "RFMClassifier",
    "RFMRegressor",
    "Solution",
    "StoredGram",
    "StreamingRidge",
    "TangentHierarchy",
    "TrainState",
    "Trajectory",
    "alignment",
    "as_gpytorch_kernel",
    "as_sklearn_kernel",
    "empirical",
    "errors",
    "evidence",
    "features",
    "finite_width_correction",
    "gram",
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
    "open_gram",
    "parametrize_ntk",
    "posterior",
    "remove_ntk",
    "solve",
    "supported_layers",
    "tabular_pipeline",
    "tangent_hierarchy",
    "taylor",
    "testing",
    "train",
    "widen",
]
