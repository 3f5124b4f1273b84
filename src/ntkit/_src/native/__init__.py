"""The native engine: a planner in Python, and a C++ core that runs its tapes on the CPU."""

from ._build_info import BuildInfo, SimdLevel, build_info, roofline
from ._engine import NativeEngine, TapeKind, tape_of, unsupported_reason
from ._network import ranges, single_precision
from ._runner import BeyondRange
from ._work import rectified_entries, rectified_operations
