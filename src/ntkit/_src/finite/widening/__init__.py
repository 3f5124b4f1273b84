"""The same architecture with wider hidden layers."""

from ._widen import widen
