"""Infinitely wide networks as scikit-learn estimators."""

from __future__ import annotations

from ._label_aware_classifier import LabelAwareClassifier
from ._ntk_estimators import NTKClassifier, NTKRegressor
from ._ntk_features import NTKFeatures, StreamingRidge
from ._rfm import RFMClassifier, RFMRegressor
from ._tabular import tabular_pipeline
from .saved import load_model, save_model
