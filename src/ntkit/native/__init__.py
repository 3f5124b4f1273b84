"""The compiled core: C++ that runs on the CPU, many times faster than the reference engine."""

from ._build_info import BuildInfo, SimdLevel, build_info, roofline
from ._engine import NativeEngine, reason_against

__all__ = ["BuildInfo", "NativeEngine", "SimdLevel", "build_info", "reason_against", "roofline"]
