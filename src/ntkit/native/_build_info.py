"""What the compiled core was built with, and what this machine offers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from . import _core

__all__ = ["BuildInfo", "SimdLevel", "build_info", "roofline"]

SimdLevel: TypeAlias = Literal["avx512", "avx2", "neon", "baseline"]


@dataclass(frozen=True)
class BuildInfo:
    """How the compiled core was built, and which instruction set this machine offers it.

    Attributes
    ----------
    version : str
        Version of ntkit that the core was built from. It differs from ``ntkit.__version__`` where the version changed after
        an editable install; a change of the C++ sources alone does not show.
    simd : {"avx512", "avx2", "neon", "baseline"}
        Widest instruction set of this machine that the core asks about. On x86-64 the core has code of its own for
        ``"avx512"`` (F, BW, DQ and VL, in vectors of 256 bits), ``"avx2"`` (AVX2 and FMA) and ``"baseline"`` (SSE2). On ARM,
        ``"neon"`` is part of the baseline: the same code as there, compiled with it.
    compiler : str
        Compiler that built the core: ``"gcc"``, ``"clang"``, ``"apple-clang"``, ``"msvc"`` or ``"unknown"``.
    compiler_version : str
        Version of that compiler, e.g. ``"12.2.0"``; empty where it does not tell.
    """

    version: str
    simd: SimdLevel
    compiler: str
    compiler_version: str


def build_info() -> BuildInfo:
    """Tell how the compiled core was built and which instruction set this machine offers it.

    Returns
    -------
    BuildInfo
        Version, instruction set, compiler and compiler version.

    Examples
    --------
    >>> from ntkit.native import build_info
    >>> build_info().simd in {"avx512", "avx2", "neon", "baseline"}
    True
    """
    return BuildInfo(
        version=_core.version(),
        simd=_core.simd_level(),
        compiler=_core.compiler(),
        compiler_version=_core.compiler_version(),
    )


def roofline(single: bool = True, seconds: float = 0.5) -> float:
    """Measure how many covariance entries per second one thread updates when nothing but arithmetic takes time.

    It runs the arithmetic of a 3 x 3 convolution and a ReLU, with Theta, on data that stay in the first-level cache.

    Parameters
    ----------
    single
        True (default): single precision. False: double.
    seconds
        How long to measure; default 0.5. The best of many short runs counts.

    Returns
    -------
    float
        Entries per second.

    Examples
    --------
    >>> from ntkit.native import roofline
    >>> roofline(seconds=0.01) > 1e6
    True
    """
    return float(_core.roofline(single, seconds))
