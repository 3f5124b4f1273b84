"""Rules: how each operation transforms covariances, and the reference engine that runs them in torch."""

from ._covariance import Moments
from ._crop import cropped
from ._engine import check_sketchable, moments, random_features, read_data, variance_keeps, variances
from ._sizes import check_pair, gram_between
from ._sketch import CountSketch, Draws
from ._tiles import Kernels, diag, gram, pair_bytes, position_gram, prior_positions
from .expectations import odd_factorial, safe_sqrt
