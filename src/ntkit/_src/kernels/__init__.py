"""Kernels: the protocol, the exact kernels of infinitely wide networks, those of finite ones, and adapters to other libraries."""

from ._estimate import Estimate
from ._explain import Explanation
from ._gpytorch import as_gpytorch_kernel
from ._infinite_width import InfiniteWidth, NtkAndNngp, infinite_width
from ._infinite_width_kernel import InfiniteWidthKernel
from ._kernel import Kernel, check_kernel
from ._prior_limit import PriorKernel, PriorLimit
from .finite_network import (
    BYTE_BUDGET,
    Batch,
    Empirical,
    EmpiricalKernel,
    Inputs,
    Network,
    as_inputs,
    check_modes,
    empirical,
)
