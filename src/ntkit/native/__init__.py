"""The native engine: a planner in Python, and a C++ core that runs its tapes on the CPU."""

from ._build_info import BuildInfo, SimdLevel, build_info, roofline
from ._engine import NativeEngine, TapeKind, reason_against, tape_of

__all__ = [
    "BuildInfo",
    "NativeEngine",
    "SimdLevel",
    "TapeKind",
    "build_info",
    "reason_against",
    "roofline",
    "tape_of",
]
