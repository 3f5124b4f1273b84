"""The compiled core: C++ that runs on the CPU, many times faster than the reference engine."""

from ._build_info import BuildInfo, SimdLevel, build_info

__all__ = ["BuildInfo", "SimdLevel", "build_info"]
