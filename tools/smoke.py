"""Whether an installed wheel works: both engines agree on a small network, and the program answers.

Run it in an environment that has the wheel with its extra ``cli``, anywhere but beside the sources: ``python smoke.py``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import ntkit
from ntkit._src.native import build_info


def main() -> None:
    """Check the engines in both dtypes, then the program."""
    here = Path(ntkit.__file__).resolve()
    assert "site-packages" in here.parts, f"{here} is not an installed wheel"
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    )  # fmt: skip
    limit = ntkit.infinite_width(net, b_std=0.1)
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = limit.ntk(x, engine="reference")
    torch.testing.assert_close(limit.ntk(x, engine="native"), exact, rtol=1e-11, atol=0)
    torch.testing.assert_close(limit.ntk(x.float(), engine="native"), exact.float(), rtol=1e-5, atol=0)
    ask = [sys.executable, "-m", "ntkit", "--version"]
    version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    assert version == f"ntkit {ntkit.__version__}" == f"ntkit {build_info().version}", version
    print(f"{version} works: {build_info()}")


if __name__ == "__main__":
    main()
