"""Conformance suites that a new rule or kernel must pass."""

from ntkit._src.testing import KernelConformance, RuleConformance

__all__ = [
    "KernelConformance",
    "RuleConformance",
]
