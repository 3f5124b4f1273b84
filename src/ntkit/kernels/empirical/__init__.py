"""Kernels of a finite network as it is, by the cheapest of several exact methods."""

from ._empirical import BYTE_BUDGET, Empirical, EmpiricalKernel, empirical
from ._inputs import Batch, Inputs, as_inputs
from ._jacobian import jacobian_rows
from ._network import Network, check_modes

__all__ = [
    "BYTE_BUDGET",
    "Batch",
    "Empirical",
    "EmpiricalKernel",
    "Inputs",
    "Network",
    "as_inputs",
    "check_modes",
    "empirical",
    "jacobian_rows",
]
from ._layers import TRANSPOSED, Call, Layer, layer_gram, read_gradients, read_patches, structured_layers

__all__ = [
    "BYTE_BUDGET",
    "TRANSPOSED",
    "Batch",
    "Call",
    "Empirical",
    "EmpiricalKernel",
    "Layer",
    "Network",
    "as_inputs",
    "check_modes",
    "empirical",
    "jacobian_rows",
    "layer_gram",
    "read_gradients",
    "read_patches",
    "structured_layers",
]
