"""Rules: how each operation transforms covariances, and the reference engine that runs them in torch."""

from ._crop import cropped
from ._engine import read_data
from ._random_features import check_sketchable, random_features
from ._sketch import CountSketch, Draws
from ._tiles import Kernels, diag, gram, pair_bytes, position_gram, prior_positions
from .expectations import odd_factorial
