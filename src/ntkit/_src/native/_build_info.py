"""How the compiled core was built, and which instruction set this machine offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from . import _core

SimdLevel: TypeAlias = Literal["avx512", "avx2", "neon", "baseline"]


@dataclass(frozen=True)
class BuildInfo:
    """How the compiled core was built, and which instruction set this machine offers."""

    version: str  # of ntkit; ``ntkit.__version__`` differs if it changed after an editable install
    # The widest instruction set of this machine that the core checks for. On x86-64 the core has separate code for "avx512" (F,
    # BW, DQ and VL, in vectors of 256 bits), "avx2" (AVX2 and FMA) and "baseline" (SSE2); "neon" is the baseline code of ARM. The
    # environment variable NTKIT_INSTRUCTION_SET, read once, holds the core to a narrower one: baseline or avx2.
    simd: SimdLevel
    compiler: str  # "gcc", "clang", "apple-clang", "msvc" or "unknown"
    compiler_version: str  # such as "12.2.0"; empty if unknown


def build_info() -> BuildInfo:
    """Return how the compiled core was built and which instruction set this machine offers."""
    return BuildInfo(_core.version(), _core.simd_level(), _core.compiler(), _core.compiler_version())


def roofline(single: bool = True, seconds: float = 0.5) -> float:
    """Measure how many covariance entries per second one thread updates when only arithmetic takes time."""
    # It runs the arithmetic of a 3 x 3 convolution and a ReLU, with Theta, on data that stay in the first-level cache, in
    # single or double precision. The best of many short runs counts.
    return float(_core.roofline(single, seconds))
