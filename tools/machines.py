"""Run the tests as other machines would: ``python tools/machines.py [NAME ...] [--pytest ARGUMENTS]``.

Last digits depend on the instruction set, on the kernels that BLAS chooses and on the number of threads; what tests take for
granted may depend on their order, on the seed of hashes and on who runs them. Each name below is one such machine, held to
narrower instruction sets by the variables of the libraries. Without names it runs ``CHEAP``: each of two machines differs
from this one in everything at once, on the folders where numbers matter; ``all`` runs every machine with the whole test suite.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from numpy._core import _multiarray_umath as numpy_core

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = (
    *(
        f"tests/{name}"
        for name in ("rules", "native", "kernels", "solvers", "dynamics", "labels", "features", "finite")
    ),
    *(f"tests/{name}" for name in ("gram", "common", "diagnostics", "estimators", "test_pages.py")),
    "studies/tests",
)
"""What ``CHEAP`` runs: where numbers are computed or compared."""


def numpy_without(*words: str) -> str:
    """Name numpy's instruction sets that this machine has and whose names contain a word."""
    found, every = numpy_core.__cpu_features__, numpy_core.__cpu_dispatch__
    return " ".join(name for name in every if found[name] and any(word in name for word in words))


AVX2 = {
    "OPENBLAS_CORETYPE": "Haswell",  # numpy's and scipy's BLAS
    "ATEN_CPU_CAPABILITY": "avx2",  # torch
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",  # torch's BLAS, on processors of Intel
    "ONEDNN_MAX_CPU_ISA": "AVX2",  # torch's convolutions
    "NPY_DISABLE_CPU_FEATURES": numpy_without("AVX512", "V4"),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512DQ",  # exp, log and their like
    "NTKIT_INSTRUCTION_SET": "avx2",
}
BASELINE = {
    "OPENBLAS_CORETYPE": "Nehalem",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "NPY_DISABLE_CPU_FEATURES": numpy_without("AVX", "V3", "V4"),
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512DQ,-AVX2,-FMA",
    "NTKIT_INSTRUCTION_SET": "baseline",
}
MACHINES: dict[str, dict[str, str]] = {
    "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "openblas-skylakex": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "openblas-nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
    "torch-default": {"ATEN_CPU_CAPABILITY": "default"},
    "torch-avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "native-baseline": {"NTKIT_INSTRUCTION_SET": "baseline"},
    "native-avx2": {"NTKIT_INSTRUCTION_SET": "avx2"},
    "avx2": AVX2,
    "baseline": BASELINE,
    "two-threads": {"NTKIT_TEST_THREADS": "2"},
    "four-threads": {"NTKIT_TEST_THREADS": "4"},
    "order-1": {"NTKIT_TEST_ORDER": "1", "PYTHONHASHSEED": "random"},
    "order-2": {"NTKIT_TEST_ORDER": "2", "PYTHONHASHSEED": "random"},
    "read-only": {},
    "avx2-two-threads": {**AVX2, "NTKIT_TEST_THREADS": "2", "NTKIT_TEST_ORDER": "1", "PYTHONHASHSEED": "random"},
    "baseline-four-threads": {
        **BASELINE,
        "NTKIT_TEST_THREADS": "4",
        "NTKIT_TEST_ORDER": "2",
        "PYTHONHASHSEED": "random",
    },
}
CHEAP = ("avx2-two-threads", "baseline-four-threads")


def run(name: str, arguments: list[str]) -> bool:
    """Run the tests on one machine; return whether they pass."""
    environment = {**os.environ, **MACHINES[name]}
    user: dict[str, object] = {}
    if name == "openblas-skylakex" and not numpy_core.__cpu_features__.get("AVX512_SKX"):
        print(f"== {name}: left out, as this processor has no AVX-512", flush=True)
        return True
    with tempfile.TemporaryDirectory() as home:
        if name == "read-only":
            if os.geteuid() == 0:  # nobody, who owns nothing
                user = {"user": 65534, "group": 65534, "extra_groups": []}
                os.chown(home, 65534, 65534)
            elif os.access(ROOT, os.W_OK):
                raise SystemExit(
                    f"{ROOT} must not be writable: run this as root, or `sudo chown -R root {ROOT}` first."
                )
            environment |= {"HOME": home, "TMPDIR": home}
        shown = " ".join(f"{key}={value!r}" for key, value in MACHINES[name].items())
        print(f"== {name}: {shown}", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "loadfile", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, check=False, **user).returncode == 0  # type: ignore[call-overload]


def main() -> int:
    """Run the tests on each machine named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", choices=[*MACHINES, "all", []], metavar="NAME", help=", ".join([*MACHINES, "all"])
    )
    parser.add_argument(
        "--pytest", nargs=argparse.REMAINDER, default=[], help="arguments for pytest, the last option here"
    )
    given = parser.parse_args()
    names = [*MACHINES] if "all" in given.names else given.names or CHEAP
    arguments = given.pytest or ([] if given.names else [*NUMBERS])
    failed = [name for name in names if not run(name, arguments)]
    print(f"tests fail on: {', '.join(failed)}" if failed else f"tests pass on: {', '.join(names)}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
