"""The native engine: a planner in Python, and a C++ core that runs its tapes on the CPU."""

from ._build_info import BuildInfo, SimdLevel, build_info, roofline
from ._engine import NativeEngine, TapeKind, reason_against, tape_of
from ._network import single_precision

__all__ = [
    "BuildInfo",
    "NativeEngine",
    "SimdLevel",
    "TapeKind",
    "build_info",
    "reason_against",
    "roofline",
    "single_precision",
    "tape_of",
]
