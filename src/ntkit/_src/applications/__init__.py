"""Applications of tangent kernels: completion of matrices, and scores of untrained networks."""

from . import search
from .completion import NTKImputer
