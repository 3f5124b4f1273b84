"""What a network learns beyond its kernel: feature matrices, the neural feature ansatz, and optimisers that strengthen it."""

from ._adaptive_speed import AdaptiveSpeed
from ._correlation import correlation, randomize_eigenvectors
from ._expected_ptk import expected_ptk
from ._matrices import agop, nfm, ptk_covariance
from ._nfa import NFA, nfa
from ._ptk import layer_ntk, ptk
from ._recorder import History, Recorder
from ._speed_limited import SpeedLimited

__all__ = [
    "NFA",
    "AdaptiveSpeed",
    "History",
    "Recorder",
    "SpeedLimited",
    "agop",
    "correlation",
    "expected_ptk",
    "layer_ntk",
    "nfa",
    "nfm",
    "ptk",
    "ptk_covariance",
    "randomize_eigenvectors",
]
