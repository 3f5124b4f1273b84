"""What kernels say about networks: elasticity, spectra, bounds, the evolution of kernels, attribution."""

from ntkit._src.diagnostics import *  # noqa: F403
from ntkit._src.diagnostics import __all__ as __all__
