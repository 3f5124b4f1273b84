from dataclasses import FrozenInstanceError

import pytest

import ntkit
from ntkit._src.native import build_info


def test_build_info():
    info = build_info()
    assert info.version == ntkit.__version__
    assert info.simd in ("avx512", "avx2", "baseline", "neon")
    with pytest.raises(FrozenInstanceError):
        info.simd = "none"
