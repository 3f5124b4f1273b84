"""Infinitely wide networks as scikit-learn estimators."""

from __future__ import annotations

from ._classifier import NTKClassifier
from ._label_aware_classifier import LabelAwareClassifier
from ._ntk_features import NTKFeatures
from ._regressor import NTKRegressor
from ._streaming_ridge import StreamingRidge

__all__ = ["LabelAwareClassifier", "NTKClassifier", "NTKFeatures", "NTKRegressor", "StreamingRidge"]
from ._tabular import tabular_pipeline

__all__ = ["LabelAwareClassifier", "NTKClassifier", "NTKRegressor", "tabular_pipeline"]
from ._rfm_classifier import RFMClassifier
from ._rfm_regressor import RFMRegressor

__all__ = ["LabelAwareClassifier", "NTKClassifier", "NTKRegressor", "RFMClassifier", "RFMRegressor"]
