import os
import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest

import ntkit
from ntkit._src.native import _core, build_info, roofline

_SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("_core", sys.argv[1])
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
print(core.simd_level())
"""


def test_build_info():
    info = build_info()
    assert info.version == ntkit.__version__
    assert info.simd in ("avx512", "avx2", "baseline", "neon")
    with pytest.raises(FrozenInstanceError):
        info.simd = "none"


def test_roofline():
    assert roofline(seconds=0.01) > 1e6


def level(given: str) -> subprocess.CompletedProcess[str]:
    """Load the core alone in a new process, as it reads the variable once."""
    environment = {**os.environ, "NTKIT_INSTRUCTION_SET": given}
    command = [sys.executable, "-c", _SCRIPT, _core.__file__]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_environment_holds_the_core_to_narrower_instruction_sets():
    widest = level("").stdout.strip()
    levels = [widest] if widest == "neon" else ["baseline", "avx2", "avx512"]
    levels = levels[: levels.index(widest) + 1]
    for given in ("baseline", "avx2", "avx512"):
        expected = given if given in levels else widest
        assert level(given).stdout.strip() == expected
    assert "must be baseline, avx2 or avx512, not 'sse9'" in level("sse9").stderr
