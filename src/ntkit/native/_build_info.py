"""What the compiled core was built with, and what this machine offers it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from . import _core

__all__ = ["BuildInfo", "SimdLevel", "build_info", "roofline"]

SimdLevel: TypeAlias = Literal["avx512", "avx2", "neon", "baseline"]


@dataclass(frozen=True)
class BuildInfo:
    """How the compiled core was built, and the instruction set it finds at run time.

    Attributes
    ----------
    version : str
        Version of ntkit that the core was built from. It differs from ``ntkit.__version__`` only where an editable
        install was not built again.
    simd : {"avx512", "avx2", "neon", "baseline"}
        Widest instruction set of this machine that the core knows. ``"avx512"`` means F, BW, DQ and VL; ``"avx2"``
        means AVX2 and FMA; ``"baseline"`` is what every processor of the platform has.
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
    """Tell how the compiled core was built and which instruction set it uses on this machine.

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
    """Measure how many entries of a covariance one thread could update in a second if nothing but arithmetic took time.

    The same arithmetic as in a convolution of 3 x 3 with a ReLU behind it, on data that stay in the first-level cache.

    Parameters
    ----------
    single
        Single precision; False: double.
    seconds
        How long to measure; the best of many short runs counts.

    Examples
    --------
    >>> from ntkit.native import roofline
    >>> roofline(seconds=0.01) > 1e6
    True
    """
    return float(_core.roofline(single, seconds))
