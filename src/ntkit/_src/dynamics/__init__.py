"""Training dynamics and Bayesian inference from kernels."""

from ._evidence import Evidence, evidence, log_marginal_likelihood
from ._gradient_flow import GradientFlow
from ._leave_one_out import LeaveOneOut, leave_one_out
from ._posterior import Posterior, posterior
from ._squared_error import Descent, LearningCurves, SquaredError, flow_filter, max_learning_rate
