"""Rules: how each operation transforms covariances, and the reference engine that runs them in torch."""

from ._engine import read_data
from ._tiles import BYTE_BUDGET, Kernels, Progress, diag, gram, pair_bytes

__all__ = ["BYTE_BUDGET", "Kernels", "Progress", "diag", "gram", "pair_bytes", "read_data"]
