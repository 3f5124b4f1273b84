"""The conformance suites that a new rule or kernel must pass, and the finite-network oracle they use."""

from ._finite import Estimate, extrapolated_kernels, sampled_kernels
from ._kernels import KernelConformance
from ._rules import RuleConformance
