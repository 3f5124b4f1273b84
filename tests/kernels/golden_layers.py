"""Golden values of networks with further layers, from an independent implementation; absent in a plain checkout."""

from pathlib import Path

import numpy as np
import pytest
import torch

FILE = Path(__file__).parents[3] / "shared" / "golden" / "layers.npz"


def golden(name):
    """Give the arrays of one network by name, float64."""
    if not FILE.exists():
        pytest.skip("golden values are not beside this checkout")
    with np.load(FILE) as arrays:
        return {key.partition("/")[2]: torch.tensor(arrays[key]) for key in arrays if key.startswith(f"{name}/")}


def assert_golden(found, expected, digits=1e-10):
    """Compare relative to the largest entry."""
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < digits, f"off by {error:.1e}"
