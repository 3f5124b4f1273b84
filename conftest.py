"""What the examples in docstrings share with the tests."""

import os

# Tests and the programs they start share the processors; threads that spin while they wait would take them from each other.
# Libraries read these variables when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # torch
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy and scipy; OpenBLAS has no other way to stop the spinning

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded_examples(request: pytest.FixtureRequest) -> None:
    """Examples draw without a seed, as users do; here they see the same draws in every run."""
    if isinstance(request.node, pytest.DoctestItem):
        torch.manual_seed(0)
