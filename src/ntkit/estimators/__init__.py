"""Infinitely wide networks as scikit-learn estimators."""

from __future__ import annotations

from ._classifier import NTKClassifier
from ._label_aware_classifier import LabelAwareClassifier
from ._regressor import NTKRegressor

__all__ = ["LabelAwareClassifier", "NTKClassifier", "NTKRegressor"]
