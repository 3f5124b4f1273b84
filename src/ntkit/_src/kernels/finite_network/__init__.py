"""Kernels of a finite network with its present parameters, by the cheapest of several exact methods."""

from ._empirical import BYTE_BUDGET, Empirical, EmpiricalKernel, empirical
from ._jacobian import jacobian_rows
from ._layers import LAYERS, TRANSPOSED, Call, Layer, layer_gram, read_gradients, read_patches, structured_layers
from ._network import Batch, Inputs, Network, as_inputs, check_modes
