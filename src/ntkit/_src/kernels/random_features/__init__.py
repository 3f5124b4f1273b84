"""Random features of tangent kernels: vectors whose inner products estimate the kernel, for very many rows."""

from ._features import RandomFeatures, jacobian_features, sketched_features

__all__ = ["RandomFeatures", "jacobian_features", "sketched_features"]
