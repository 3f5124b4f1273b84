"""Recursive feature machines: kernel regression whose metric is the average gradient outer product of its predictor."""

from __future__ import annotations

from ._metric_kernels import DifferentiableKernel, DistanceKernel, MetricKernel
from ._metric_sum import MetricPart, MetricSum
from ._recursion import RFMSettings, RFMState, Scale, recursion

__all__ = [
    "DifferentiableKernel",
    "DistanceKernel",
    "MetricKernel",
    "MetricPart",
    "MetricSum",
    "RFMSettings",
    "RFMState",
    "Scale",
    "recursion",
]
