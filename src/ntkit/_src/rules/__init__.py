"""Rules: how each operation transforms covariances, and the reference engine that runs them in torch."""

from ._covariance import Ends, Moments
from ._engine import read_data
from ._input import input_covariance
from ._position_gram import position_gram, prior_positions
from ._tiles import BYTE_BUDGET, Kernels, diag, gram, pair_bytes
from .expectations import odd_factorial

__all__ = [
    "BYTE_BUDGET",
    "Ends",
    "Kernels",
    "Moments",
    "diag",
    "gram",
    "input_covariance",
    "odd_factorial",
    "pair_bytes",
    "position_gram",
    "prior_positions",
    "read_data",
]
