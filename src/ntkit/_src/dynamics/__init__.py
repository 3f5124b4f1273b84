"""Training dynamics and Bayesian inference from kernels."""

from __future__ import annotations

from ._evidence import Evidence, evidence, log_marginal_likelihood
from ._gradient_flow import GradientFlow
from ._integrate import Integrator, KernelTraining, descend
from ._integrate import integrate as integrate_outputs
from ._leave_one_out import LeaveOneOut, leave_one_out
from ._posterior import Posterior, posterior
from ._squared_error import Descent, LearningCurves, SquaredError, flow_filter, max_learning_rate

__all__ = [
    "Descent",
    "Evidence",
    "GradientFlow",
    "Integrator",
    "KernelTraining",
    "LearningCurves",
    "LeaveOneOut",
    "Posterior",
    "SquaredError",
    "descend",
    "evidence",
    "flow_filter",
    "integrate_outputs",
    "leave_one_out",
    "log_marginal_likelihood",
    "max_learning_rate",
    "posterior",
]
